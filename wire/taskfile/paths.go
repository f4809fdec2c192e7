package taskfile

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/task"
)

// UpdatesURL returns where a relay with an address and a key tells the next hop with another key of what there is.
func UpdatesURL(relay task.Party, hop task.SignKey) string {
	return relay.URL + strings.NewReplacer("{relay}", hex.EncodeToString(relay.SignKey[:]), "{hop}",
		hex.EncodeToString(hop[:])).Replace(endpoint.UpdatesPath)
}

// OwnersTasksURL returns where a relay takes a task of an owner that it has approved.
func OwnersTasksURL(relay task.Party, owner task.SignKey) string {
	return relay.URL + strings.Replace(endpoint.OwnersTasksPath, "{owner}", hex.EncodeToString(owner[:]), 1)
}

// OwnersKeysURL returns where a relay makes its list of keys for a task of an owner that it has approved.
func OwnersKeysURL(relay task.Party, owner task.SignKey, label Label, kem task.KEM, count uint64) string {
	return relay.URL + strings.NewReplacer("{owner}", hex.EncodeToString(owner[:]), "{label}",
		hex.EncodeToString(label[:]), "{kem}", string(kem), "{count}", strconv.FormatUint(count, 10)).
		Replace(endpoint.OwnersKeysPath)
}

// URL returns where clients find the task: at its first relay, the only one they speak to.
func (o *Open) URL() string { return o.Relays[0].URL + endpoint.PathOf(o.ID) }

// StreamURL returns where the relay at a hop serves the stream of which o is the first task: clients ask hop 0 only.
// The relay's address is that of t, o's own or a later task.
func (o *Open) StreamURL(t *task.Task, hop int) string {
	return t.Relays[hop].URL + o.path(endpoint.StreamPath, 0, 0)
}

// SuccessorsURL returns where the relay at a hop takes the next task of the stream of which o is the first.
// The relay's address is that of t, a later task.
func (o *Open) SuccessorsURL(t *task.Task, hop int) string {
	return t.Relays[hop].URL + o.path(endpoint.SuccessorsPath, 0, 0)
}

// StatementsURL returns where the relay at a hop takes statements about the stream of which o is the first task. The
// relay's address is that of t, a later task.
func (o *Open) StatementsURL(t *task.Task, hop int) string {
	return t.Relays[hop].URL + o.path(endpoint.StatementsPath, 0, 0)
}

// NextKeysURL returns where the relay at a hop makes its list of keys for a position and a number of epochs.
func (o *Open) NextKeysURL(t *task.Task, hop int, position, count uint64) string {
	path := strings.NewReplacer("{position}", strconv.FormatUint(position, 10), "{count}",
		strconv.FormatUint(count, 10)).Replace(endpoint.NextKeysPath)
	return t.Relays[hop].URL + o.path(path, 0, 0)
}

// ReportsURL returns where clients post the reports of an epoch.
func (o *Open) ReportsURL(epoch uint64) string {
	return o.Relays[0].URL + o.path(endpoint.ReportsPath, epoch, 0)
}

// BatchURL returns where the relay at a hop hands out a batch.
func (o *Open) BatchURL(hop int, epoch, seq uint64) string {
	return o.Relays[hop].URL + o.path(endpoint.BatchPath, epoch, seq)
}

// ConfirmURL returns where the relay at a hop is told that the next one has a batch.
func (o *Open) ConfirmURL(hop int, epoch, seq uint64) string {
	return o.Relays[hop].URL + o.path(endpoint.ConfirmPath, epoch, seq)
}

// EndURL returns where the relay at a hop hands out the signed end of an epoch.
func (o *Open) EndURL(hop int, epoch uint64) string {
	return o.Relays[hop].URL + o.path(endpoint.EndPath, epoch, 0)
}

// TimeURL returns where the relay at a hop, or the issuer at the hop after the verifier, tells its time.
func (o *Open) TimeURL(hop int) string {
	party := o.Clients.Issuer
	if hop < len(o.Relays) {
		party = o.Relays[hop]
	}
	return party.URL + o.path(endpoint.TimePath, 0, 0)
}

// DirectoryURL returns where the issuer of a task with tokens lists its key of an epoch.
func (o *Open) DirectoryURL(epoch uint64) string {
	return o.Clients.Issuer.URL + o.path(endpoint.DirectoryPath, epoch, 0)
}

// TokenRequestURL returns where the issuer of a task with tokens takes the token requests of an epoch.
func (o *Open) TokenRequestURL(epoch uint64) string {
	return o.Clients.Issuer.URL + o.path(endpoint.TokenRequestPath, epoch, 0)
}

// path fills in a path's names.
func (o *Open) path(pattern string, epoch, seq uint64) string {
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	return strings.NewReplacer("{task}", o.ID.String(), "{epoch}", number(epoch), "{seq}", number(seq)).Replace(pattern)
}
