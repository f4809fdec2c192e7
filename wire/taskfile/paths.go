package taskfile

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/task"
)

// UpdatesURL returns the URL at which a relay lists its open epochs for the next hop that has this key.
func UpdatesURL(relay task.Party, hop task.SignKey) string {
	return relay.URL + strings.NewReplacer("{relay}", hex.EncodeToString(relay.SignKey[:]), "{hop}",
		hex.EncodeToString(hop[:])).Replace(endpoint.UpdatesPath)
}

// OwnersTasksURL returns the URL at which a relay accepts tasks of an owner that it has approved.
func OwnersTasksURL(relay task.Party, owner task.SignKey) string {
	return relay.URL + strings.Replace(endpoint.OwnersTasksPath, "{owner}", hex.EncodeToString(owner[:]), 1)
}

// WithdrawURL returns the URL at which a relay accepts the withdrawal of a task, signed by owner.
func WithdrawURL(relay task.Party, owner task.SignKey, id task.ID) string {
	return relay.URL + strings.NewReplacer("{owner}", hex.EncodeToString(owner[:]), "{task}", id.String()).
		Replace(endpoint.WithdrawPath)
}

// OwnersKeysURL returns the URL of a request that makes a relay generate keys for count epochs, and return their list.
// The relay must have approved the task's owner. label names the list, and kem its kind of key.
func OwnersKeysURL(relay task.Party, owner task.SignKey, label Label, kem task.KEM, count uint64) string {
	return relay.URL + strings.NewReplacer("{owner}", hex.EncodeToString(owner[:]), "{label}",
		hex.EncodeToString(label[:]), "{kem}", string(kem), "{count}", strconv.FormatUint(count, 10)).
		Replace(endpoint.OwnersKeysPath)
}

// URL returns the task's URL at its first relay. Clients contact no other relay.
func (o *Open) URL() string { return o.Relays[0].URL + endpoint.PathOf(o.ID) }

// StreamURL returns the URL at which the relay at a hop of t serves the stream whose first task is o. Clients ask hop 0
// only. t is o's own task or a later task of the stream, and contains the relay's current address.
func (o *Open) StreamURL(t *task.Task, hop int) string {
	return t.Relays[hop].URL + o.path(endpoint.StreamPath, 0, 0)
}

// SuccessorsURL returns the URL at which the relay at a hop of t accepts the next task of the stream whose first task
// is o. t is a later task of the stream, and contains the relay's current address.
func (o *Open) SuccessorsURL(t *task.Task, hop int) string {
	return t.Relays[hop].URL + o.path(endpoint.SuccessorsPath, 0, 0)
}

// StatementsURL returns the URL at which the relay at a hop of t accepts statements about the stream whose first task
// is o. t is a later task of the stream, and contains the relay's current address.
func (o *Open) StatementsURL(t *task.Task, hop int) string {
	return t.Relays[hop].URL + o.path(endpoint.StatementsPath, 0, 0)
}

// NextKeysURL returns the URL at which the relay at a hop of t makes its key list for the task at this position of the
// stream whose first task is o. count is that task's number of epochs.
func (o *Open) NextKeysURL(t *task.Task, hop int, position, count uint64) string {
	path := strings.NewReplacer("{position}", strconv.FormatUint(position, 10), "{count}",
		strconv.FormatUint(count, 10)).Replace(endpoint.NextKeysPath)
	return t.Relays[hop].URL + o.path(path, 0, 0)
}

// ReportsURL returns the URL to which clients post the reports of an epoch.
func (o *Open) ReportsURL(epoch uint64) string {
	return o.Relays[0].URL + o.path(endpoint.ReportsPath, epoch, 0)
}

// BatchURL returns the URL at which the relay at a hop serves a batch.
func (o *Open) BatchURL(hop int, epoch, seq uint64) string {
	return o.Relays[hop].URL + o.path(endpoint.BatchPath, epoch, seq)
}

// ConfirmURL returns the URL at which the relay at a hop accepts the next hop's confirmation that it has stored a
// batch.
func (o *Open) ConfirmURL(hop int, epoch, seq uint64) string {
	return o.Relays[hop].URL + o.path(endpoint.ConfirmPath, epoch, seq)
}

// EndURL returns the URL at which the relay at a hop serves the signed end of an epoch.
func (o *Open) EndURL(hop int, epoch uint64) string {
	return o.Relays[hop].URL + o.path(endpoint.EndPath, epoch, 0)
}

// TimeURL returns the URL at which the party at a hop serves its time: a relay, or the issuer, whose hop is the
// verifier's plus one.
func (o *Open) TimeURL(hop int) string {
	party := o.Clients.Issuer
	if hop < len(o.Relays) {
		party = o.Relays[hop]
	}
	return party.URL + o.path(endpoint.TimePath, 0, 0)
}

// DirectoryURL returns the URL at which the issuer of a task with tokens serves its public key for an epoch.
func (o *Open) DirectoryURL(epoch uint64) string {
	return o.Clients.Issuer.URL + o.path(endpoint.DirectoryPath, epoch, 0)
}

// TokenRequestURL returns the URL at which the issuer of a task with tokens accepts token requests for an epoch.
func (o *Open) TokenRequestURL(epoch uint64) string {
	return o.Clients.Issuer.URL + o.path(endpoint.TokenRequestPath, epoch, 0)
}

// path replaces the names in a path pattern with the task's id, the epoch and the batch number.
func (o *Open) path(pattern string, epoch, seq uint64) string {
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	return strings.NewReplacer("{task}", o.ID.String(), "{epoch}", number(epoch), "{seq}", number(seq)).Replace(pattern)
}
