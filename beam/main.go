// Command beam does the work of `verifier analyze` on the workers of an Apache Beam runner. It reads batch files,
// checks and opens them, finds messages that several batches share, and writes one state. From it, `verifier merge`
// prints the same bytes that one `verifier analyze` of all files prints.
//
//	go run . --task mean.bundle --keys verifier.keys --out all.state 'batches/*'
//	verifier merge --task mean.bundle --ledger ledger all.state
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/io/filesystem"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/io/filesystem/gcs"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/io/filesystem/local"
	_ "github.com/apache/beam/sdks/v2/go/pkg/beam/io/filesystem/s3"
	"github.com/apache/beam/sdks/v2/go/pkg/beam/x/beamx"
)

const usage = `Usage: beam --task BUNDLE --keys FILE --out STATE [flags of the runner] GLOB...

Reads batch files and ends of epochs, as 'verifier analyze' does, on the workers of a runner, and writes what they say
to STATE, for 'verifier merge'. Without --runner it runs in this process (Prism). Globs, and STATE, are paths or
gs:// or s3:// addresses that every worker can reach.

--keys is a path on each worker. The key itself never travels: put it there as you put other secrets. What workers
exchange are opened messages, which are the verifier's to see: run it where the verifier may run.

`

func main() {
	bundle := flag.String("task", "", "signed task bundle")
	keys := flag.String("keys", "", "the verifier's HPKE key file, on every worker")
	out := flag.String("out", "", "file to write, for 'verifier merge'")
	flag.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	beam.Init()
	if err := run(context.Background(), *bundle, *keys, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bundle, keys, out string, globs []string) error {
	for name, value := range map[string]string{"--task": bundle, "--keys": keys, "--out": out} {
		if value == "" {
			return fmt.Errorf("missing %s: see --help", name)
		}
	}
	task, err := os.ReadFile(bundle)
	if err != nil {
		return err
	}
	paths, err := list(ctx, globs)
	if err != nil {
		return err
	}
	p, s := beam.NewPipelineWithRoot()
	if err := analyze(s, task, keys, out, paths); err != nil {
		return err
	}
	if err := beamx.Run(ctx, p); err != nil {
		return err
	}
	fmt.Printf("%s: the result of %d files, for 'verifier merge'\n", out, len(paths))
	return nil
}

// list returns the files that globs match, sorted and without repeats.
func list(ctx context.Context, globs []string) (paths []string, err error) {
	for _, glob := range globs {
		disk, err := filesystem.New(ctx, glob)
		if err != nil {
			return nil, err
		}
		found, err := disk.List(ctx, glob)
		if err := errors.Join(err, disk.Close()); err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	slices.Sort(paths)
	paths = slices.Compact(paths)
	if len(paths) == 0 {
		return nil, fmt.Errorf("no file matches %q", globs)
	}
	return paths, nil
}
