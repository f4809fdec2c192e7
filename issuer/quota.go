package issuer

import "encoding/binary"

// quota returns how many tokens of an epoch an account may have, where the task's entry says quota. Of a network it is
// one of quota to 2·quota − 1, drawn for the epoch by its secret: so neighbours do not learn from the answer
// [problem.Limit] how many tokens the others of it had, as they would from an exact one. An account that a backend
// names has exactly quota.
func (i *Issuer) quota(key *epochKey, account []byte, quota int) (int, error) {
	if i.cfg.Clients != clientsAddress || quota <= 1 {
		return quota, nil
	}
	draw, err := key.name("quota", account)
	return quota + int(binary.BigEndian.Uint64(draw[:8])%uint64(quota)), err
}
