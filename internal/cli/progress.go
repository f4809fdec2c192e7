package cli

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Progress returns a progress bar on standard error; it stays silent where that is not a terminal
// until the work is done, so that logs hold one line.
func Progress(label string, total int) *progressbar.ProgressBar {
	return progressbar.NewOptions(total,
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetDescription(label),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionOnCompletion(func() { os.Stderr.WriteString("\n") }),
	)
}
