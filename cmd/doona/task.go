package main

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

func taskCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "task", Short: "Make and check tasks",
		Example: `  doona task new --query count --batch 1000 --epsilon 1 --delta 1e-6 --out t.json
  doona task check t.json`}
	cmd.AddCommand(taskNewCommand(), taskRenewCommand(), taskTransferCommand(), taskStopCommand(),
		taskRecoverCommand(), taskWithdrawCommand(), taskRotateKeyCommand(), taskCheckCommand(), taskTypesCommand(),
		taskFilesCommand())
	return cmd
}

// taskFlags are the flags of `doona task new` beyond the query.
type taskFlags struct {
	query    planner.Query
	noise    noiseFlags
	asked    queryFlags
	params   []string
	out      string
	owner    string
	relays   []string
	verifier string
	issuer   string
	start    string
	length   string
	count    uint64
	quota    uint64
	origins  []string
	stream   string
	allow    []string
	ca       string
}

const aboutTaskNew = `New chooses the protocol's parameters for a query and a privacy target and writes the task.

Without --protocol it takes the first row of 'doona plan' and prints the reason. 'doona plan' shows the
alternatives. If no row is possible, New prints each row's reason and exits with status 1.

Without --relay it writes a draft as JSON: enough for 'doona simulate'. With the relays in the
order reports visit them, the verifier, and the owner's key it writes the signed bundle that
relays serve and clients check, and the same as JSON beside it (FILE.json).

A relay's operator can give you its list of keys for each task, and list the task. Or it approves you
once for some tasks ('owners' in relay.yaml): then leave KEYLIST out, and New asks the relay for its
keys, signs the task and sends it. The relay serves it at once. If FILE already has this task, New sends
it again. So run the same command again after a relay could not be reached.

The batch size is the number of reports shuffled together; --honest is the share of them you
assume to come from honest clients. The guarantee is calibrated for their product.

With --noise relays the guarantee needs no other honest client: every relay adds dummies to every
batch, and one relay that does not collude is enough. Relays release batches of any size. The price:
without --local-epsilon the verifier receives exact answers, unlinked, and if all relays collude with
it, no protection remains. The error is about 2 for a count, 4 for one of 256 bins, at epsilon 1 and for any
number of clients. With --noise clients the clients randomize.

With --issuer every report needs an anonymous token. The issuer gives tokens to persons whom it can
distinguish ('issuer --help'). Without an issuer, relays distinguish clients by network address, which
does not protect against someone with many networks (Sybils). The issuer must be independent of you and
of the verifier: someone with unlimited tokens can surround one person with their own clients.

By default a network (IPv4 /24, IPv6 /48) has one report in an epoch. That shuts out all but one of the
visitors who share it: half of a household of two, 90 % of ten, 99 % of an office or a carrier's address
with 100. A higher --quota lets them in, but also lets one network add that many false reports; New
prints both. With --origin the first relay refuses reports from other sites' pages. Otherwise such pages
could use up the quota of their visitors' networks, and ask which networks have reported. List every
origin whose pages report, and apps too.

With --stream the task is the first of a stream. Pages name its id permanently, and 'doona task renew'
signs the later tasks. They differ in their epochs and keys, and in what --allow names.`

func taskNewCommand() *cobra.Command {
	var f taskFlags
	cmd := &cobra.Command{
		Use:   "new --query Q --batch N --epsilon E --delta D --out FILE",
		Short: "Calibrate a task; with parties and an owner's key, sign it",
		Long:  aboutTaskNew,
		Example: `  doona task new --query mean --protocol splitmix --range 0,180 --batch 5000 --epsilon 1 --delta 1e-6 \
      --out t.json
  doona task new --query histogram --range 0,2400 --bins 24 --batch 5000 --epsilon 1 --delta 1e-6 \
      --owner-key owner.key --relay https://r1.example,ed25519:KEY,r1.keys.pub \
      --relay https://r2.example,ed25519:KEY,r2.keys.pub --verifier ed25519:KEY,v.keys.pub \
      --epochs 30 --epoch-length 24h --out t.bundle
  doona task new --query histogram --range 0,2400 --bins 24 --batch 5000 --epsilon 1 --delta 1e-6 \
      --owner-key owner.key --relay https://r1.example,ed25519:KEY --relay https://r2.example,ed25519:KEY \
      --verifier ed25519:KEY,v.keys.pub --epochs 30 --epoch-length 24h --out t.bundle
  doona task new --query vector --protocol vectorsum --dim 1000 --batch 5000 --epsilon 1 --delta 1e-6 \
      --param k=1 --out v.json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	q := &f.query
	f.asked.add(cmd, q, "count, sum, mean, histogram, vector, vectormean or strings")
	flags.StringVar(&q.Name, "name", "task", "name, 1 to 64 printable ASCII characters")
	flags.StringVar(&q.Protocol, "protocol", "", "protocol (default: the one in the plan's first row)")
	flags.StringVar(&q.Rule, "rule", "", "accountant's rule (default: the one that gives the least error)")
	flags.StringSliceVar(&f.params, "param", nil,
		"NAME=N, a fixed protocol parameter (k, t, r); may be repeated (default: chosen)")
	flags.StringVar((*string)(&q.Padding), "padding", "",
		"full or none, where the protocol has a choice (default: its own)")
	flags.Uint64Var(&q.Lanes, "lanes", 0,
		"1, or one for each coefficient, where the protocol has a choice (default: its own)")
	flags.Uint64Var(&q.Batch, "batch", 0, "n, reports shuffled together, 1 to 4294967295")
	flags.StringVar((*string)(&q.KEM), "kem", "",
		"x25519, mlkem768x25519 or mlkem768 (post-quantum), as the key lists have it (default x25519)")
	flags.StringVar(&f.out, "out", "", "file to write")
	flags.StringVar(&f.owner, "owner-key", "", "owner's signing key file")
	flags.StringArrayVar(&f.relays, "relay", nil, "URL,ed25519:KEY,KEYLIST of a relay, in order; without KEYLIST if the relay has approved you; may be repeated")
	flags.StringVar(&f.ca, "ca", "", "file of certificates (PEM) of authorities to trust besides the system's")
	flags.StringVar(&f.verifier, "verifier", "", "ed25519:KEY,KEYLIST of the verifier")
	flags.StringVar(&f.issuer, "issuer", "", "URL,ed25519:KEY,KEYLIST of an issuer of tokens: one report per token")
	flags.StringVar(&f.start, "start", "", "start of epoch 0, RFC 3339, such as 2026-11-20T00:00:00Z "+
		"(default: now; for months, this month's start)")
	flags.StringVar(&f.length, "epoch-length", "24h",
		"length of an epoch, 1s to 8784h in whole seconds, or month (of the calendar, in UTC)")
	flags.Uint64Var(&f.count, "epochs", 1, "number of epochs, 1 to 65536; the key lists must hold as many keys")
	flags.Uint64Var(&f.quota, "quota", 1,
		"q, reports per client network (IPv4 /24, IPv6 /48) and epoch, 1 to 65535; above 1 each network's is "+
			"drawn from q to 2q−1; with --issuer 1")
	flags.StringArrayVar(&f.origins, "origin", nil, originUsage)
	flags.StringVar(&f.stream, "stream", "",
		"name of the stream that the task begins, 1 to 64 printable ASCII characters")
	flags.StringSliceVar(&f.allow, "allow", nil,
		"what later tasks of the stream may change: "+strings.Join(new(task.StreamPosition).Lossless(), ", "))
	f.noise.add(cmd)
	cli.Require(cmd, "query", "batch", "out")
	return cmd
}

func (f *taskFlags) run(cmd *cobra.Command) error {
	err := f.check(cmd)
	if err != nil {
		return err
	}
	if err := f.asked.read(); err != nil {
		return err
	}
	if f.query.Params, err = parseParams(f.params); err != nil {
		return err
	}
	if f.noise.wanted(f.query.Protocol) {
		f.query.Relays = &f.noise.relays
	}
	f.query.Epochs = f.count
	t, chosen, err := f.draft(cmd)
	if err != nil {
		return err
	}
	t.Clients.Quota, t.Clients.Origins = f.quota, sortedOrigins(f.origins)
	if err := t.ValidateDraft(); err != nil {
		return cli.FlagError(err)
	}
	if f.stream != "" {
		slices.Sort(f.allow)
		t.Stream = &task.StreamPosition{Name: f.stream, Allow: f.allow}
	}
	if len(f.relays) == 0 {
		if err := writeJSON(f.out, t); err != nil {
			return err
		}
		return printTask(cmd, t, "", fullSlots(t), nil, chosen)
	}
	bundle, err := f.sign(cmd.Context(), t)
	if err != nil {
		return err
	}
	warnOfPages(cmd, t)
	return printTask(cmd, t, taskfile.FormatKey(task.SignKey(bundle.Owner)), fullSlots(t), nil, chosen)
}

// parseParams parses protocol parameters of the form "NAME=N". It refuses a name that occurs twice.
func parseParams(texts []string) (planner.Params, error) {
	params := planner.Params{}
	for _, text := range texts {
		name, number, _ := strings.Cut(text, "=")
		n, err := strconv.ParseUint(number, 10, 63)
		if err != nil {
			return nil, cli.Usagef("invalid param %s: want NAME=N with a whole number N from 0 to 9223372036854775807", text)
		}
		if _, ok := params[name]; ok {
			return nil, cli.Usagef("invalid param %s: want each name once", text)
		}
		params[name] = n
	}
	return params, nil
}

func (f *taskFlags) check(cmd *cobra.Command) error {
	if err := f.asked.check(cmd); err != nil {
		return err
	}
	if err := f.noise.check(cmd, f.query.Protocol); err != nil {
		return err
	}
	switch {
	case cmd.Flags().Changed("lanes") && f.query.Lanes == 0:
		return cli.Usagef("invalid lanes 0: want 1 or more")
	case f.quota < 1 || f.quota > 65535:
		return cli.Usagef("invalid quota %d: want 1 to 65535", f.quota)
	case f.count < 1 || f.count > 65536:
		return cli.Usagef("invalid epochs %d: want 1 to 65536", f.count)
	case f.issuer != "" && f.quota != 1:
		return cli.Usagef("invalid quota %d: want 1 with --issuer, who decides how many tokens a person gets", f.quota)
	case f.stream == "" && len(f.allow) > 0:
		return cli.Usagef("missing flag --stream: only a stream has later tasks")
	case len(f.relays) > 0:
		return nil
	case f.owner != "" || f.verifier != "" || f.issuer != "":
		return cli.Usagef("missing flag --relay: a task to be signed names its relays")
	}
	why := "without --relay: a draft has no epochs ('doona plan' and 'doona compose' take --epochs)"
	return cli.Refuse(cmd, why, "start", "epoch-length", "epochs", "total-epsilon", "total-delta", "cap", "pace", "events",
		"default", "stream", "ca")
}

// sign adds the parties and epochs to a draft, signs it and writes it. If a relay is given without KEYLIST, sign asks
// this relay for its keys, and sends it the signed task.
func (f *taskFlags) sign(ctx context.Context, t *task.Task) (*taskfile.Bundle, error) {
	if f.owner == "" || f.verifier == "" {
		return nil, cli.Usagef("missing flag --owner-key or --verifier: a task with relays needs both")
	}
	length, ok := taskfile.ParseLength(f.length)
	if !ok || length != task.Month && length > 366*24*3600 {
		return nil, cli.Usagef("invalid epoch-length %s: want 1s to 8784h (366 days), in whole seconds, or month", f.length)
	}
	start := time.Now()
	if length == task.Month {
		start = time.Unix(length.Add(start.Unix(), 0), 0)
	}
	if f.start != "" {
		var err error
		if start, err = time.Parse(time.RFC3339, f.start); err != nil {
			return nil, cli.Usagef("invalid start %q: want RFC 3339, such as 2026-11-20T00:00:00Z", f.start)
		}
		if start.Unix() < 1 {
			return nil, cli.Usagef("invalid start %q: want a time after 1970-01-01T00:00:00Z", f.start)
		}
	}
	t.Epochs = task.Epochs{Start: uint64(start.Unix()), Length: length, Count: f.count,
		Cap: t.Epochs.Cap, Pace: t.Epochs.Pace, Events: t.Epochs.Events}
	var lists []*onion.SignedKeyList
	for _, text := range f.relays {
		url, rest, _ := strings.Cut(text, ",")
		party, list, err := parseRelay(url, rest)
		if err != nil {
			return nil, err
		}
		t.Relays, lists = append(t.Relays, party), append(lists, list)
	}
	party, list, err := parseParty("verifier", "", f.verifier)
	if err != nil {
		return nil, err
	}
	t.Verifier, lists = party, append(lists, list)
	if f.issuer != "" {
		url, rest, _ := strings.Cut(f.issuer, ",")
		if party, list, err = parseParty("issuer", url, rest); err != nil {
			return nil, err
		}
		t.Clients.Kind, t.Clients.Issuer, lists = task.ClientToken, party, append(lists, list)
	}
	if err := taskfile.CheckSize(t); err != nil { // before relays make keys for the task
		return nil, err
	}
	owner, err := cli.LoadSign(os.Stderr, f.owner)
	if err != nil {
		return nil, err
	}
	if slices.Contains(lists, nil) {
		return f.begin(ctx, t, lists, owner)
	}
	if f.ca != "" {
		return nil, cli.Usagef("invalid ca %q: want none, because each relay has its KEYLIST and none is asked", f.ca)
	}
	return f.write(t, lists, owner)
}

// write signs a task and writes it, and its JSON form beside it.
func (f *taskFlags) write(t *task.Task, lists []*onion.SignedKeyList, owner ed25519.PrivateKey) (
	*taskfile.Bundle, error) {
	bundle, err := taskfile.Sign(t, owner, lists)
	if err != nil {
		return nil, err
	}
	raw, err := bundle.Bytes()
	if err != nil {
		return nil, err
	}
	if err := writeJSON(f.out+".json", t); err != nil {
		return nil, err
	}
	// The file is on disk before any relay has the task: only from this file can the task be sent again.
	if err := durable.WriteFile(f.out, raw, 0o644); err != nil {
		return nil, fmt.Errorf("couldn't write the task: %w", err)
	}
	return bundle, nil
}

// parseRelay parses "ed25519:KEY,KEYLIST-FILE" or "ed25519:KEY". Without a file it returns no key list: begin asks the
// relay for it later.
func parseRelay(url, text string) (task.Party, *onion.SignedKeyList, error) {
	if strings.Contains(text, ",") {
		return parseParty("relay", url, text)
	}
	key, err := taskfile.ParseKey("relay", text)
	return task.Party{URL: url, SignKey: key}, nil, cli.Usage(err)
}

// parseParty parses "ed25519:KEY,KEYLIST-FILE" and reads the file.
func parseParty(flag, url, text string) (task.Party, *onion.SignedKeyList, error) {
	keyText, path, ok := strings.Cut(text, ",")
	if !ok {
		return task.Party{}, nil, cli.Usagef("invalid %s %q: want a signing key and a key-list file, separated "+
			"by a comma", flag, text)
	}
	key, err := taskfile.ParseKey(flag, keyText)
	if err != nil {
		return task.Party{}, nil, cli.Usage(err)
	}
	raw, err := taskfile.ReadFile(path)
	if err != nil {
		return task.Party{}, nil, fmt.Errorf("couldn't read key list: %w", err)
	}
	list, err := onion.ParseKeyList(raw)
	if err != nil {
		return task.Party{}, nil, fmt.Errorf("%s: %w", path, err)
	}
	return task.Party{URL: url, SignKey: key, KeyList: list.Hash()}, list, nil
}

func writeJSON(path string, t *task.Task) error {
	out, err := taskfile.MarshalJSON(t)
	if err != nil {
		return fmt.Errorf("couldn't encode the task: %w", err)
	}
	if err := os.WriteFile(path, append(out, '\n'), 0o644); err != nil {
		return fmt.Errorf("couldn't write the task: %w", err)
	}
	return nil
}
