package house_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
	"github.com/doona-dp/doona/wire/token"
)

// Whose bytes a decoder reads.
const (
	another = "another party's"
	own     = "its own, from its disk or of its operator"
)

// decoders lists every file that decodes bytes, whose bytes they are, and what limits their number. Decoders of another
// party's bytes are in [reads], or run after a check of a signature or of a length that the task gives.
var decoders = map[string][2]string{
	"internal/service/admin.go":         {own, "16 bytes, the name of a level"},
	"wire/onion/keys.go":                {another, "exactly the keys that the task has, behind its hash"},
	"wire/onion/batch.go":               {another, "MaxManifest, the task's lanes, behind the relay's signature"},
	"wire/onion/end.go":                 {another, "handover's maxEnd, the task's lanes, behind the relay's signature"},
	"wire/signing/time.go":              {another, "256 bytes"},
	"wire/onion/chunks.go":              {another, "MaxManifest, then the chunks that were signed for"},
	"wire/onion/set.go":                 {another, "the size of every submission of the set"},
	"wire/tableset/set.go":              {another, "MaxBundle, behind the owner's signature"},
	"wire/tableset/bundle.go":           {another, "MaxBundle; keys: the reader's limit"},
	"wire/onion/envelope.go":            {another, "the size of every report of the task"},
	"wire/handover/handover.go":         {another, "the most that each question's answer has"},
	"wire/handover/status.go":           {another, "MaxUpstreamStatus, 37 bytes an epoch"},
	"wire/taskfile/statement.go":        {another, "MaxStatement, MaxStatements"},
	"wire/taskfile/stream.go":           {another, "MaxStream, MaxTasks"},
	"wire/taskfile/bundle.go":           {another, "MaxTask before the signature, then what the task implies"},
	"wire/taskfile/json.go":             {own, "MaxBundle, by ReadFile"},
	"wire/token/directory.go":           {another, "16 KiB"},
	"wire/problem/problem.go":           {another, "4 KiB"},
	"wire/keyfile/keyfile.go":           {own, "a key file"},
	"shufflerclient/token.go":           {another, "256 bytes"},
	"shufflerclient/ledgerfile.go":      {own, "the ledger"},
	"relay/internal/ingress/ingress.go": {another, "the size of every report of the task, and the network's share in flight"},
	"relay/internal/tasks/handed.go":    {another, "MaxHanded, of an approved owner"},
	"shufflerclient/set.go":             {another, "MaxBundle of a set, or of a task's keys"},
	"relay/internal/tasks/streams.go":   {another, "MaxStatement"},
	"relay/internal/epochs/epochs.go":   {own, "the store's manifests"},
	"cmd/verifier/query.go":             {own, "1 MiB, a question"},
	"verifier/crosstab/shape.go":        {own, "8 MiB, a table's dimensions"},
	"relay/internal/mixing/mixer.go":    {own, "the store's manifests"},
	"relay/internal/keytree/file.go":    {own, "the secret"},
	"relay/internal/store/manifests.go": {own, "the store's manifests"},
	"issuer/http.go":                    {another, "259 bytes"},
	"issuer/binding.go":                 {own, "the store"},
	"verifier/collect/manifests.go":     {own, "records"},
	"verifier/state.go":                 {own, "states of a verifier that is trusted"},
	"verifier/collect/resume.go":        {own, "the data folder"},
	"verifier/collect/notes.go":         {own, "the data folder"},
	"verifier/closed.go":                {own, "the data folder"},
	"verifier/verifier.go":              {own, "records of a verifier that is trusted"},
	"verifier/recorder.go":              {own, "records of a verifier that is trusted"},
	"verifier/server/webhook.go":        {own, "the data folder"},
	"verifier/server/results.go":        {own, "the data folder"},
	"verifier/files.go":                 {another, "1 MiB, of a file"},
	"cmd/verifier/password.go":          {own, "4 KiB"},
	"internal/rollback/mark.go":         {own, "marks"},
	"internal/clock/mark.go":            {own, "the clock's mark"},
	"internal/ledger/state.go":          {own, "the ledger"},
	"internal/service/config.go":        {own, "1 MiB"},
	"internal/table/table.go":           {own, "32 MiB a row"},
	"internal/cli/operate.go":           {own, "1 KiB"},
	"cmd/issuer/serve.go":               {own, "64 MiB, of an admin address"},
	"cmd/relay/status.go":               {own, "64 MiB, of an admin address"},
	"cmd/relay/public_text.go":          {another, "2 KiB"},
	"cmd/doona/load.go":                 {own, "64 MiB, of an admin address"},
	"cmd/doona/load_compare.go":         {own, "figures"},
	"cmd/doona/task_rotate_key.go":      {another, "MaxBundle, by ReadFile"},
	"cmd/doona/plan_set.go":             {own, "a set of queries"},
	"cmd/doona/dev_folder.go":           {own, "what the last start has left"},
	"internal/table/lines.go":           {own, "64 KiB a line"},
	"wire/taskfile/keys.go":             {own, "what its caller has decoded"},
	"wasm/edge/value.go":                {another, "the numbers of the task's domain, 1 MiB"},
	"wasm/edge/config.go":               {own, "the worker's configuration"},
}

var reading = regexp.MustCompile(`\b(codec\.(Unmarshal|NewView|NewReader)|json\.(Unmarshal|NewDecoder)|io\.ReadAll|` +
	`csv\.NewReader|yaml\.(NewDecoder|Unmarshal)|gob\.NewDecoder|xml\.(Unmarshal|NewDecoder)|bufio\.NewScanner|` +
	`msgpack\.(Unmarshal|NewDecoder))\(`)

// TestDecodersAreListed: every file that decodes bytes is listed in decoders with the source of the bytes and their
// limit.
func TestDecodersAreListed(t *testing.T) {
	skipped := []string{"bench", "testdata", "www", "cmd/demo", "deploy", "internal/openloop", "wasm/fuzzcases",
		"scripts"}
	skipped = append(skipped, testOnly...)
	found := map[string]bool{}
	doctest.EachFile(t, ".", func(name string) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || anyWithin(path.Dir(name), skipped) {
			return
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		if !reading.Match(text) {
			return
		}
		found[name] = true
		require.True(t, decoders[name] != [2]string{}, "%s calls %s: add the file to decoders, with whose bytes these are and what limits them",
			name, reading.FindString(string(text)))
	})
	for name := range decoders {
		require.True(t, found[name], "%s no longer decodes anything: remove it from decoders", name)
	}
}

// reads holds decoders of another party's bytes. Their memory must be proportional to the input.
var reads = map[string]func(in []byte) error{
	"task":   func(in []byte) error { _, err := task.Parse(in); return err },
	"bundle": func(in []byte) error { _, err := taskfile.ParseOpen(in); return err },
	"bundle as it comes": func(in []byte) error {
		_, _, err := taskfile.ReadBundle(bytes.NewReader(in), func(*taskfile.Open) error { return nil })
		return err
	},
	"stream": func(in []byte) error {
		_, err := taskfile.ReadChain(bytes.NewReader(in), task.ID{})
		return err
	},
	"statement":       func(in []byte) error { _, err := taskfile.ParseStatement(in, task.ID{}); return err },
	"statements":      func(in []byte) error { _, err := taskfile.ParseStatements(bytes.NewReader(in)); return err },
	"document":        func(in []byte) error { _, _, err := taskfile.ParseJSON(in); return err },
	"keys":            func(in []byte) error { _, err := onion.ParseKeyList(in); return err },
	"manifest":        func(in []byte) error { _, err := onion.ParseSigned(in); return err },
	"manifest's head": func(in []byte) error { _, err := (&onion.Batch{Manifest: in}).Header(); return err },
	"end":             func(in []byte) error { _, err := onion.ParseEnd(in); return err },
	"batch":           func(in []byte) error { _, err := onion.ParseBatch(in); return err },
	"batch as it comes": func(in []byte) error {
		_, err := onion.NewBatchReader(bytes.NewReader(in), int64(len(in)))
		return err
	},
	"time": func(in []byte) error {
		_, err := signing.OpenTime(&task.Task{Relays: make([]task.Party, 1)}, task.ID{}, 0, signing.Nonce{}, in)
		return err
	},
	"directory":        func(in []byte) error { _, err := token.ParseDirectory(in); return err },
	"token key":        func(in []byte) error { _, err := token.ParsePublicKey(in); return err },
	"header of tokens": func(in []byte) error { _, err := token.ParseHeader(string(in)); return err },
	"problem": func(in []byte) error {
		return problem.Read(&http.Response{Body: io.NopCloser(bytes.NewReader(in))})
	},
}

// TestDecodersTakeWhatComes: on malicious input, a decoder allocates at most 64 bytes per input byte and 64 KiB more.
// The worst case is an empty list in a list: 24 bytes, allocated as 32, and as many again for the check.
func TestDecodersTakeWhatComes(t *testing.T) {
	const perByte, fixed = 64, 64 << 10
	requireIn := func(name, kind string, in []byte) {
		before := fixture.Allocated()
		err := reads[name](in)
		took := fixture.Allocated() - before
		require.LessOrEqual(t, took, uint64(fixed+perByte*len(in)), "decoder %s takes too much memory: %s of %d bytes", name, kind, len(in))
		require.Error(t, err, "decoder %s must refuse %s", name, kind)
	}
	rng := rand.New(rand.NewPCG(41, 41))
	for name := range reads {
		for _, size := range []int{16, 1 << 10, 1 << 15} {
			for depth := range 4 { // junk at the outermost level and inside up to 3 nested lists
				for _, c := range fixture.JunkBehind("junk", bytes.Repeat([]byte{0x92}, depth), size) {
					requireIn(name, c.Name, c.Bytes())
				}
			}
		}
		for range 100 {
			in := make([]byte, 1+rng.IntN(1000))
			for i := range in {
				in[i] = byte(rng.Uint32()) | 0x80 // msgpack headers begin from 0x80 on
			}
			requireIn(name, "anything", in)
		}
	}
}
