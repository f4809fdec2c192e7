package ledger

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// A ledger's file has a header line and a JSON document. The header has the document's length in bytes and its SHA-256:
//
//	doona-ledger VERSION LENGTH SHA256
//	{…}
//
// The document holds tasks, epochs and claims, which the task owner has published. It also reveals that results of
// these epochs were shown. It contains nothing about clients, batches or answers.
const (
	label   = "doona-ledger"
	version = 2

	linkBytes = 16
)

// state is the content of a ledger.
type state struct {
	id         string // Random, drawn by the first charge; tells two ledgers of one stream apart.
	generation uint64 // How often epochs were charged.
	history    []byte // linkBytes per generation: see document.link.
	pin        *pin   // nil before the first charge
	tasks      []chargedTask
	written    bool // The state and its rollback mark are on disk.
}

type chargedTask struct {
	id    task.ID
	start uint64      // When the task's epoch 0 begins, in Unix seconds; 0 without a cap and without events.
	runs  [][2]uint64 // First and last epoch of each range; ascending and not adjacent.
}

// document is the JSON form of a state.
type document struct {
	ID         string     `json:"id"`
	Stream     string     `json:"stream"`
	Generation uint64     `json:"generation"`
	History    []byte     `json:"history,omitempty"`
	Claim      claimForm  `json:"claim"`
	Law        []byte     `json:"law,omitempty"` // See [compose.Law.Encode].
	Tasks      []taskForm `json:"tasks"`
}

// link returns the hash of this generation and all earlier ones. If two ledgers were charged differently once, all
// their later links differ. d.History ends with the previous link.
func (d document) link() ([]byte, error) {
	h := sha256.New()
	h.Write(d.History)
	d.History = nil
	body, err := json.Marshal(d)
	h.Write(body)
	return h.Sum(nil)[:linkBytes], err
}

type claimForm struct {
	Epsilon      string      `json:"epsilon"`
	Delta        string      `json:"delta"`
	TotalEpsilon string      `json:"totalEpsilon,omitempty"`
	TotalDelta   string      `json:"totalDelta,omitempty"`
	Epochs       uint64      `json:"epochs"`
	Cap          string      `json:"cap,omitempty"`
	Events       string      `json:"events,omitempty"`  // K/W.
	Default      uint64      `json:"default,omitempty"` // With events.
	Rest         bool        `json:"rest,omitempty"`    // With events: the noise has a rest cell.
	Length       task.Length `json:"length,omitempty"`  // With a cap or events.
}

type taskForm struct {
	Task   string      `json:"task"`
	Start  uint64      `json:"start,omitempty"`
	Epochs [][2]uint64 `json:"epochs"`
}

// Name returns the name of a task's ledger: the id of its stream's first task, or its own id outside a stream. root is
// the first task's id if the caller knows it, else zero. A task at position 0 or 1 contains the first task's id. For a
// later task, Name searches folder for a ledger that lists it or the previous task. Name returns an error if the first
// task remains unknown, or if root contradicts the task or a ledger.
func Name(open *taskfile.Open, folder string, root task.ID) (string, error) {
	first := First(open)
	switch {
	case first == (task.ID{}):
		first = root
	case root != (task.ID{}) && root != first:
		return "", invalid.Field("root", root.String(), first.String()+", the first task of the stream")
	}
	if open.Stream == nil {
		return first.String(), nil
	}
	name, err := findLedger(folder, first, open.ID, open.Stream.Before)
	switch {
	case err != nil:
		return "", err
	case first == (task.ID{}) && name == "":
		return "", fmt.Errorf("%w: no ledger in %q lists task %s, at position %d, or the previous task: name the "+
			"stream's first task (root)", ErrNone, folder, open.ID, open.Stream.Position)
	case first != (task.ID{}) && name != "" && name != first.String():
		return "", invalid.Field("root", first.String(), name+", because its ledger lists task "+
			open.ID.String()+" or the previous task")
	case name == "":
		return first.String(), nil
	}
	return name, nil
}

// Root returns root's id if root may be the first task of open's stream. Otherwise it returns an error.
func Root(open, root *taskfile.Open) (task.ID, error) {
	switch {
	case open.Stream == nil:
		return task.ID{}, invalid.Field("root", root.ID.String(), "none for a task outside a stream")
	case root.Stream == nil || root.Stream.Position != 0 || root.Stream.Name != open.Stream.Name:
		return task.ID{}, invalid.Field("root", root.ID.String(), "the first task of stream "+open.Stream.Name)
	}
	return root.ID, nil
}

// First returns the id of the first task of a task's stream, or zero if the task does not contain it.
func First(open *taskfile.Open) task.ID {
	switch {
	case open.Stream == nil || open.Stream.Position == 0:
		return open.ID
	case open.Stream.Position == 1:
		return open.Stream.Before
	}
	return task.ID{}
}

// findLedger returns the name of the ledger in a folder that is named for the first task or lists one of others; "" if
// there is none. If it finds none but cannot read some ledger, it returns an error, because that may be the one.
func findLedger(folder string, first task.ID, others ...task.ID) (found string, err error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.ledger"))
	if err != nil {
		return "", fmt.Errorf("couldn't look for the ledger: %w", err)
	}
	var unread error
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".ledger")
		raw, err := os.ReadFile(path)
		var s *state
		if err == nil && name != first.String() {
			s, err = parse(raw, name)
		}
		switch {
		case err != nil:
			unread = fmt.Errorf("couldn't read the ledger %s, which may be this stream's: %w", path, err)
		case s != nil && !s.lists(others):
		case found != "":
			return "", fmt.Errorf("couldn't choose a ledger: %s and %s both belong to this stream", found, name)
		default:
			found = name
		}
	}
	if found == "" {
		return "", unread
	}
	return found, nil
}

func (s *state) lists(tasks []task.ID) bool {
	return slices.ContainsFunc(s.tasks, func(c chargedTask) bool { return slices.Contains(tasks, c.id) })
}

func (l *Ledger) path() string { return filepath.Join(l.options.Folder, l.stream+".ledger") }

// markBase is the path of the ledger's rollback mark without ".mark". It contains the stream's name, because several
// tasks may share keys.
func (l *Ledger) markBase() string { return l.options.Beside + "." + l.stream[:16] + ".ledger" }

// lock creates the folder and excludes other processes until unlock.
func (l *Ledger) lock() (unlock func(), err error) {
	if err := durable.MakeFolder(l.options.Folder, 0o700); err != nil {
		return nil, fmt.Errorf("couldn't create the ledger's folder: %w", err)
	}
	if unlock, err = durable.Lock(l.path()); err != nil {
		return nil, fmt.Errorf("couldn't lock the ledger: %w", err)
	}
	return unlock, nil
}

// read reads the ledger and compares it with its rollback mark.
func (l *Ledger) read() (*state, error) {
	mark, err := l.readMark()
	if err != nil {
		return nil, err
	}
	s := &state{}
	raw, err := os.ReadFile(l.path())
	switch {
	case errors.Is(err, fs.ErrNotExist) && mark.ID == "" && l.options.Existing:
		return nil, fmt.Errorf("%w: there is no %s", ErrNone, l.path())
	case errors.Is(err, fs.ErrNotExist) && mark.ID == "":
		return s, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %s is gone, but %s.mark says that results were published: restore it from a "+
			"backup, or name its folder", ErrRolledBack, l.path(), l.markBase())
	case err != nil:
		return nil, fmt.Errorf("couldn't read the ledger: %w", err)
	}
	if s, err = parse(raw, l.stream); err != nil {
		return nil, fmt.Errorf("couldn't read the ledger %s: %w", l.path(), err)
	}
	switch {
	case mark.ID != "" && mark.ID != s.id:
		return nil, fmt.Errorf("%w: %s is not the ledger that %s.mark belongs to", ErrRolledBack, l.path(), l.markBase())
	case mark.Generation > s.generation:
		return nil, fmt.Errorf("%w: %s was rolled back: it has %d charges, but %s.mark counts %d", ErrRolledBack,
			l.path(), s.generation, l.markBase(), mark.Generation)
	case mark.ID != "" && !bytes.Equal(mark.Link, s.link(mark.Generation)):
		return nil, fmt.Errorf("%w: %s was rolled back and charged again: its charge %d differs from %s.mark",
			ErrRolledBack, l.path(), mark.Generation, l.markBase())
	}
	return s, nil
}

// write writes a state, then its rollback mark. Then the results of its epochs may be published. The caller holds the
// ledger's lock.
func (l *Ledger) write(next *state) error {
	if next.id == "" && next.count() == 0 {
		return nil // nothing was charged
	}
	changed := next != l.state
	if changed {
		if next.id == "" {
			next.id = rand.Text()
		}
		raw, err := next.advance(l.stream)
		if err != nil {
			return err
		}
		if err := durable.WriteFile(l.path(), raw, 0o600); err != nil {
			return fmt.Errorf("couldn't write the ledger: %w", err)
		}
	} else if err := durable.Sync(l.path()); err != nil { // its writer may have been killed before syncing
		return fmt.Errorf("couldn't sync the ledger: %w", err)
	}
	if err := l.writeMark(mark{next.id, next.generation, next.link(next.generation)}); err != nil {
		return fmt.Errorf("couldn't write the ledger's rollback mark: %w", err)
	}
	next.written = true
	l.state = next
	return nil
}

// mark is the ledger's rollback mark: see Options.Beside. It records how far the ledger has come.
type mark struct {
	ID         string `json:"id"`
	Generation uint64 `json:"generation"`
	Link       []byte `json:"link"` // Hash of all charges up to Generation.
}

func (l *Ledger) readMark() (m mark, err error) {
	raw, err := durable.ReadSlotFile(l.markBase())
	if err == nil && raw != nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil {
		err = fmt.Errorf("couldn't read the ledger's rollback mark: %w", err)
	}
	return m, err
}

func (l *Ledger) writeMark(to mark) error {
	m, err := durable.OpenSlotFile(l.markBase())
	if err != nil {
		return err
	}
	raw, err := json.Marshal(to)
	if err == nil && !slices.Equal(raw, m.Value()) {
		err = m.Write(raw)
	}
	return errors.Join(err, m.Close())
}

// parse reads a ledger's file. Its error says what is wrong with the file.
func parse(raw []byte, stream string) (*state, error) {
	head, body, ok := strings.Cut(string(raw), "\n")
	fields := strings.Fields(head)
	if !ok || len(fields) < 2 || fields[0] != label {
		return nil, errors.New("it is damaged: it does not begin with \"doona-ledger\"")
	}
	if fields[1] != strconv.Itoa(version) {
		return nil, fmt.Errorf("it has version %s, want %d", fields[1], version)
	}
	if len(fields) != 4 {
		return nil, errors.New("it is damaged: its first line does not have 4 fields")
	}
	length, err := strconv.ParseUint(fields[2], 10, 32)
	sum := digest(sha256.Sum256([]byte(body)))
	switch {
	case err != nil:
		return nil, errors.New("it is damaged: its first line has no length")
	case uint64(len(body)) < length:
		return nil, fmt.Errorf("it is cut short: %d of %d bytes", len(body), length)
	case uint64(len(body)) > length || hex.EncodeToString(sum[:]) != fields[3]:
		return nil, errors.New("it is damaged: its content does not match its hash")
	}
	var d document
	if err := json.Unmarshal([]byte(body), &d); err != nil {
		return nil, err
	}
	if d.Stream != stream {
		return nil, errors.New("it belongs to another stream")
	}
	if err := d.checkHistory(); err != nil {
		return nil, err
	}
	return d.state()
}

// checkHistory returns an error unless the history has one link per generation and the last one matches this document.
func (d *document) checkHistory() error {
	n := len(d.History)
	if n == 0 || n%linkBytes != 0 || uint64(n/linkBytes) != d.Generation {
		return errors.New("it is damaged: its history does not have one link per charge")
	}
	before := *d
	before.History = d.History[:n-linkBytes]
	link, err := before.link()
	if err == nil && !bytes.Equal(link, d.History[n-linkBytes:]) {
		err = errors.New("it is damaged: its history does not match its content")
	}
	return err
}

func (d *document) state() (*state, error) {
	s := &state{id: d.ID, generation: d.Generation, history: d.History}
	claim := task.NewClaim(d.Claim.Epsilon, d.Claim.Delta)
	if d.Claim.TotalEpsilon != "" {
		claim.SetTotal(d.Claim.TotalEpsilon, d.Claim.TotalDelta)
	}
	if err := claim.Check(); err != nil {
		return nil, err
	}
	s.pin = &pin{claim: claim, epochs: task.Epochs{Count: d.Claim.Epochs, Length: d.Claim.Length}, rest: d.Claim.Rest}
	s.pin.epochs.Events.Default = d.Claim.Default
	if err := cmp.Or(s.pin.epochs.Cap.Parse("cap", d.Claim.Cap), s.pin.epochs.Events.Parse(d.Claim.Events)); err != nil {
		return nil, err
	}
	if s.pin.needsTimes() && (d.Claim.Length == 0 || d.Claim.Length > 1<<25 && d.Claim.Length != task.Month) {
		return nil, errors.New("it is damaged: its cap or its events have no length of epochs")
	}
	if d.Law != nil {
		law, err := compose.DecodeLaw(d.Law)
		if err != nil {
			return nil, err
		}
		s.pin.law = law
	}
	for _, t := range d.Tasks {
		c := chargedTask{start: t.Start, runs: t.Epochs}
		if n, err := hex.Decode(c.id[:], []byte(t.Task)); err != nil || n != len(c.id) {
			return nil, errors.New("it is damaged: it has an invalid task id")
		}
		for i, r := range c.runs {
			if r[0] > r[1] || r[1] >= task.MaxEpochs || i > 0 && c.runs[i-1][1] >= r[0] {
				return nil, errors.New("it is damaged: epochs are not in order")
			}
		}
		s.tasks = append(s.tasks, c)
	}
	return s, nil
}

// link returns the link of a generation up to the current one; nil for others.
func (s *state) link(generation uint64) []byte {
	if generation == 0 || generation > uint64(len(s.history)/linkBytes) {
		return nil
	}
	return s.history[(generation-1)*linkBytes : generation*linkBytes]
}

// advance raises the state's generation by one, and returns the content of the ledger's file.
func (s *state) advance(stream string) ([]byte, error) {
	s.generation++
	d := s.document(stream)
	link, err := d.link()
	if err != nil {
		return nil, fmt.Errorf("couldn't write the ledger: %w", err)
	}
	s.history = slices.Concat(s.history, link) // A copy, because states share their history.
	d.History = s.history
	return d.bytes()
}

func (s *state) document(stream string) document {
	total := s.pin.claim.Total
	d := document{ID: s.id, Stream: stream, Generation: s.generation, History: s.history, Claim: claimForm{
		s.pin.claim.Epsilon.String(), s.pin.claim.Delta.String(), total.Epsilon.String(), total.Delta.String(),
		s.pin.epochs.Count, "", "", 0, false, s.pin.epochs.Length}}
	if !s.pin.epochs.Cap.IsZero() {
		d.Claim.Cap = s.pin.epochs.Cap.String()
	}
	if e := s.pin.epochs.Events; !e.IsZero() {
		d.Claim.Events, d.Claim.Default, d.Claim.Rest = e.String(), e.Default, s.pin.rest
	}
	if s.pin.law != nil {
		d.Law = s.pin.law.Encode()
	}
	for _, t := range s.tasks {
		d.Tasks = append(d.Tasks, taskForm{t.id.String(), t.start, t.runs})
	}
	return d
}

type digest [sha256.Size]byte

func (d document) bytes() ([]byte, error) {
	body, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return nil, fmt.Errorf("couldn't write the ledger: %w", err)
	}
	sum := digest(sha256.Sum256(append(body, '\n')))
	return append(fmt.Appendf(nil, "%s %d %d %x\n", label, version, len(body)+1, sum), append(body, '\n')...), nil
}

func (s *state) clone() *state {
	out := *s
	out.written = false
	out.tasks = slices.Clone(s.tasks)
	return &out
}

func (s *state) index(open *taskfile.Open) int {
	return slices.IndexFunc(s.tasks, func(c chargedTask) bool { return c.id == open.ID })
}

func (s *state) has(open *taskfile.Open) bool { return s.index(open) >= 0 }

// uncharged returns those of the epochs that are not charged yet, ascending and without repeats.
func (s *state) uncharged(open *taskfile.Open, epochs []uint64) (out []uint64) {
	var runs [][2]uint64
	if at := s.index(open); at >= 0 {
		runs = s.tasks[at].runs
	}
	for _, e := range slices.Compact(slices.Sorted(slices.Values(epochs))) {
		if !slices.ContainsFunc(runs, func(r [2]uint64) bool { return r[0] <= e && e <= r[1] }) {
			out = append(out, e)
		}
	}
	return out
}

// add marks epochs of a task as charged. None of them is charged yet.
func (s *state) add(open *taskfile.Open, epochs []uint64) {
	at := s.index(open)
	if at < 0 {
		at = len(s.tasks)
		s.tasks = append(s.tasks, chargedTask{id: open.ID, runs: [][2]uint64{}})
		if newPin(open.Task).needsTimes() {
			s.tasks[at].start = open.Epochs.Start
		}
	}
	all := slices.Clone(s.tasks[at].runs)
	for _, e := range epochs {
		all = append(all, [2]uint64{e, e})
	}
	slices.SortFunc(all, func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
	runs := [][2]uint64{}
	for _, r := range all {
		if n := len(runs); n > 0 && runs[n-1][1]+1 == r[0] {
			runs[n-1][1] = r[1]
		} else {
			runs = append(runs, r)
		}
	}
	s.tasks[at].runs = runs
}

// with returns the state with further charged epochs, for estimates.
func (s *state) with(open *taskfile.Open, epochs []uint64) *state {
	next := s.clone()
	if next.pin == nil {
		next.pin = newPin(open.Task)
	}
	next.add(open, epochs)
	return next
}

func (s *state) count() (n uint64) {
	for _, t := range s.tasks {
		for _, r := range t.runs {
			n += r[1] - r[0] + 1
		}
	}
	return n
}

// pinnedTask returns a task with the claim and number of epochs of the stream's first charged task, which determine
// costs; before the first charge, t.
func (s *state) pinnedTask(t *task.Task) *task.Task {
	if s.pin == nil {
		return t
	}
	out := &task.Task{Claim: s.pin.claim, Epochs: s.pin.epochs}
	if s.pin.rest {
		out.Noise = &task.Noise{Rest: &s.pin.epochs.Events.Default}
	}
	return out
}

// reports returns the most reports of one client in the charged epochs of all tasks: all of them, or fewer with a cap.
func (s *state) reports() uint64 {
	starts, known := s.starts()
	if !known {
		return s.count()
	}
	return s.pin.epochs.MostReportsAt(starts)
}

// copies returns how many copies of the pinned law cover one client's reports in the charged epochs of all tasks. That
// counts neither events nor reports that were made, only those that could have been.
func (s *state) copies() uint64 {
	starts, known := s.starts()
	if !known {
		return s.count()
	}
	return s.pinnedTask(nil).MostCopiesAt(starts)
}

// starts returns when the charged epochs of all tasks begin, if costs depend on that.
func (s *state) starts() ([]uint64, bool) {
	if s.pin == nil || !s.pin.needsTimes() {
		return nil, false
	}
	var starts []uint64
	for _, t := range s.tasks {
		for _, r := range t.runs {
			for e := r[0]; e <= r[1]; e++ {
				starts = append(starts, uint64(s.pin.epochs.Length.Add(int64(t.start), int64(e))))
			}
		}
	}
	slices.Sort(starts)
	return starts, true
}
