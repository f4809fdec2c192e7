// Package endpoint lists the paths of the HTTP interface of relays and issuers. Servers route by them, and clients fill
// them in: package taskfile does, for a task.
package endpoint

import (
	"strings"

	"github.com/doona-dp/doona/wire/task"
)

// The paths of the HTTP interface, in the form that [net/http.ServeMux] takes and with its names: a task
// by its id in lower-case hex, an epoch and a batch by their numbers. Relays serve all but the
// last two, a task's issuer those and the time.
const (
	KeysPath    = "/v1/keys"
	UpdatesPath = "/v1/news/{relay}/{hop}" // the keys of a relay and of its next hop: see [taskfile.UpdatesURL]
	TaskPath    = "/v1/tasks/{task}"
	ReportsPath = epochPath + "/reports"
	BatchPath   = epochPath + "/batches/{seq}"
	ConfirmPath = BatchPath + "/confirm"
	EndPath     = epochPath + "/end"
	TimePath    = TaskPath + "/time"

	StreamPath     = "/v1/streams/{task}" // by the id of its first task, as all of a stream
	SuccessorsPath = StreamPath + "/successors"
	StatementsPath = StreamPath + "/statements"
	NextKeysPath   = SuccessorsPath + "/{position}/keys/{count}"

	OwnersTasksPath = "/v1/owners/{owner}/tasks" // by the owner's key, as lists of keys
	OwnersKeysPath  = "/v1/owners/{owner}/keys/{label}/{kem}/{count}"

	DirectoryPath    = epochPath + "/issuer-directory"
	TokenRequestPath = epochPath + "/" + TokenRequest

	epochPath = TaskPath + "/epochs/{epoch}"
)

// TokenRequest is where token requests go, relative to the issuer's directory.
const TokenRequest = "token-request"

// PathOf returns the path of a task at its relays.
func PathOf(id task.ID) string { return strings.Replace(TaskPath, "{task}", id.String(), 1) }
