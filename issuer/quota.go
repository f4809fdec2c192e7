package issuer

import "encoding/binary"

// quota returns how many tokens of an epoch an account may have, if the task's configuration says quota. A network gets
// one of quota to 2·quota − 1, drawn uniformly by the epoch's secret: so the answer [problem.Limit] does not tell a
// client how many tokens others in its network had, as an exact quota would. An account that a backend names gets
// exactly quota.
func (i *Issuer) quota(key *epochKey, account []byte, quota int) (int, error) {
	if i.cfg.Clients != clientsAddress || quota <= 1 {
		return quota, nil
	}
	draw, err := key.name("quota", account)
	return quota + int(binary.BigEndian.Uint64(draw[:8])%uint64(quota)), err
}
