package issuer

import "encoding/binary"

// quota returns how many tokens an account may get in an epoch; the parameter is the configured quota. An account that
// a backend names gets exactly the configured quota. A network gets quota to 2·quota − 1 tokens, drawn uniformly with
// the epoch's secret. Otherwise the refusal [problem.Limit] would tell a client how many tokens other clients of its
// network got.
func (i *Issuer) quota(key *epochKey, account []byte, quota int) (int, error) {
	if i.cfg.Clients != clientsAddress || quota <= 1 {
		return quota, nil
	}
	draw, err := key.name("quota", account)
	return quota + int(binary.BigEndian.Uint64(draw[:8])%uint64(quota)), err
}
