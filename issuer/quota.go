package issuer

import "encoding/binary"

// quota returns how many tokens of an epoch an account may get if the task's configuration says quota. An account that
// a backend names gets exactly quota. A network gets quota to 2·quota − 1 tokens, drawn uniformly with the epoch's
// secret: with an exact quota, the answer [problem.Limit] would reveal to a client how many tokens others in its
// network got.
func (i *Issuer) quota(key *epochKey, account []byte, quota int) (int, error) {
	if i.cfg.Clients != clientsAddress || quota <= 1 {
		return quota, nil
	}
	draw, err := key.name("quota", account)
	return quota + int(binary.BigEndian.Uint64(draw[:8])%uint64(quota)), err
}
