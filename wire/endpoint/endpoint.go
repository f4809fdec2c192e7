// Package endpoint lists the HTTP paths of relays and issuers. Servers route by them. Package taskfile fills them in
// for clients.
package endpoint

import (
	"strings"

	"github.com/doona-dp/doona/wire/task"
)

// The paths of the HTTP interface, as patterns of [net/http.ServeMux]. {task} is a task's id in lower-case hex;
// epochs and batches are numbers. A task's issuer serves the last two paths and the time; relays serve all others.
const (
	KeysPath    = "/v1/keys"
	UpdatesPath = "/v1/updates/{relay}/{hop}" // open epochs for a next hop: see [taskfile.UpdatesURL]
	TaskPath    = "/v1/tasks/{task}"
	ReportsPath = epochPath + "/reports"
	BatchPath   = epochPath + "/batches/{seq}"
	ConfirmPath = BatchPath + "/confirm"
	EndPath     = epochPath + "/end"
	TimePath    = TaskPath + "/time"

	StreamPath     = "/v1/streams/{task}" // {task} is the id of the stream's first task
	SuccessorsPath = StreamPath + "/successors"
	StatementsPath = StreamPath + "/statements"
	NextKeysPath   = SuccessorsPath + "/{position}/keys/{count}"

	OwnersTasksPath = "/v1/owners/{owner}/tasks" // {owner} is the owner's key
	OwnersKeysPath  = "/v1/owners/{owner}/keys/{label}/{kem}/{count}"

	DirectoryPath    = epochPath + "/issuer-directory"
	TokenRequestPath = epochPath + "/" + TokenRequest

	epochPath = TaskPath + "/epochs/{epoch}"
)

// TokenRequest is the path for token requests, relative to the issuer's directory.
const TokenRequest = "token-request"

// PathOf returns the path of a task at its relays.
func PathOf(id task.ID) string { return strings.Replace(TaskPath, "{task}", id.String(), 1) }
