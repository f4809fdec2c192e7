// Package endpoint lists the HTTP paths of relays and issuers. Servers register their handlers under these paths, and
// package taskfile fills in the names for clients.
package endpoint

import (
	"strings"

	"github.com/doona-dp/doona/wire/task"
)

// The paths of the HTTP interface, as patterns of [net/http.ServeMux]. {task} is a task's id in lower-case hexadecimal;
// {epoch} and {seq} are numbers. A task's issuer serves DirectoryPath, TokenRequestPath and TimePath. Relays serve all
// paths except DirectoryPath and TokenRequestPath.
const (
	KeysPath    = "/v1/keys"
	UpdatesPath = "/v1/updates/{relay}/{hop}" // the relay's open epochs, for a next hop: see [taskfile.UpdatesURL]
	TaskPath    = "/v1/tasks/{task}"          // with the keys of the block of the epoch that is open
	BlockPath   = "/v1/blocks/{task}/{block}" // the same with the keys of this block of epochs
	AllKeysPath = TaskPath + AllKeys          // with all keys, for parties and Go clients
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
	OwnersSetsPath  = "/v1/owners/{owner}/sets"
	WithdrawPath    = OwnersTasksPath + "/{task}/withdraw" // {owner} is the key that signs the task or stream now

	SetPath        = "/v1/sets/{set}" // {set} is a set's id, or the id of the set at position 0
	SetKeysPath    = "/v1/blocks/{set}/{clock}/{block}"
	SetReportsPath = SetPath + "/epochs/{epoch}/reports"

	DirectoryPath    = epochPath + "/issuer-directory"
	TokenRequestPath = epochPath + "/" + TokenRequest

	epochPath = TaskPath + "/epochs/{epoch}"
)

// AllKeys is what follows a task's path where relays serve it with all keys.
const AllKeys = "/keys"

// TokenRequest is the path for token requests, relative to the path of the issuer's directory.
const TokenRequest = "token-request"

// PathOf returns the path under which relays serve a task.
func PathOf(id task.ID) string { return strings.Replace(TaskPath, "{task}", id.String(), 1) }
