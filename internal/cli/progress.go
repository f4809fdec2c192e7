package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Bar shows progress on standard error. On a terminal it is a bar. Elsewhere, as in a log, work that takes longer than
// two seconds prints a line each second, and later less often.
type Bar struct {
	bar         *progressbar.ProgressBar // nil if standard error is not a terminal
	label, unit string
	done, total atomic.Int64 // total is not positive if it is not known
	finished    chan struct{}
	finish      func()
}

// Progress returns the progress of a number of things. total is -1 if it is not known.
func Progress(label string, total int) *Bar {
	return newBar(label, "", int64(total), os.Stderr, progressbar.OptionShowCount())
}

// ProgressBytes returns the progress of a number of bytes, on a terminal with rate and remaining time. The caller sets
// the total once it is known.
func ProgressBytes(label string) *Bar {
	return newBar(label, " bytes", 0, os.Stderr, progressbar.OptionShowBytes(true),
		progressbar.OptionShowTotalBytes(true))
}

func newBar(label, unit string, total int64, to io.Writer, more ...progressbar.Option) *Bar {
	b := &Bar{label: label, unit: unit, finished: make(chan struct{})}
	shown.Add(1)
	b.finish = sync.OnceFunc(func() {
		shown.Add(-1)
		close(b.finished)
	})
	b.total.Store(total)
	if file, is := to.(*os.File); is {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			b.bar = progressbar.NewOptions64(total, append([]progressbar.Option{
				progressbar.OptionSetWriter(file),
				progressbar.OptionSetDescription(label),
				progressbar.OptionSetWidth(30),
				progressbar.OptionThrottle(100 * time.Millisecond),
				progressbar.OptionOnCompletion(func() { file.WriteString("\n") }),
			}, more...)...)
			return b
		}
	}
	go lines(b.finished, func(passed int) { fmt.Fprintf(to, "%s: %s%s, %d s\n", b.label, b.count(), b.unit, passed) })
	return b
}

// shown counts the bars that have not finished.
var shown atomic.Int64

// serves is set in a program that serves until it is stopped.
var serves atomic.Bool

// Serves says that the command serves until it is stopped. Such a command does not say that it works.
func Serves() { serves.Store(true) }

// working prints lines as [Bar] does while a command works and shows no bar, until done is called.
func working(command string, to io.Writer) (done func()) {
	finished := make(chan struct{})
	go lines(finished, func(passed int) {
		if shown.Load() == 0 && !serves.Load() {
			fmt.Fprintf(to, "%s: working, %d s\n", command, passed)
		}
	})
	return sync.OnceFunc(func() { close(finished) })
}

// quietFor is how long work may take without a line.
const quietFor = 2 * time.Second

// lines calls print, with the seconds so far, after quietFor, and then each second, or each tenth of the time so far if
// that is longer.
func lines(finished chan struct{}, print func(passed int)) {
	after := quietFor
	for begun := time.Now(); ; {
		select {
		case <-finished:
			return
		case <-time.After(after):
		}
		passed := time.Since(begun)
		print(int(passed.Seconds()))
		after = max(time.Second, passed/10)
	}
}

func (b *Bar) count() string {
	if total := b.total.Load(); total > 0 {
		return fmt.Sprintf("%d of %d", b.done.Load(), total)
	}
	return fmt.Sprint(b.done.Load())
}

// Add adds to the progress. The work is over when it reaches its total.
func (b *Bar) Add(n int) {
	if b.bar != nil {
		b.bar.Add(n)
	}
	done, total := b.done.Add(int64(n)), b.total.Load()
	if total > 0 && done >= total {
		b.finish()
	}
}

// Write adds the number of bytes.
func (b *Bar) Write(p []byte) (int, error) {
	b.Add(len(p))
	return len(p), nil
}

// SetTotal sets the total, if it was not known.
func (b *Bar) SetTotal(total int64) {
	if b.bar != nil {
		b.bar.ChangeMax64(total)
	}
	b.total.Store(total)
}

// Finish ends the progress, whatever has been reached.
func (b *Bar) Finish() {
	if b.bar != nil {
		b.bar.Finish()
	}
	b.finish()
}
