package cli

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Progress returns a progress bar on standard error; it is silent where that is not a terminal.
func Progress(label string, total int) *progressbar.ProgressBar {
	info, err := os.Stderr.Stat()
	return progressbar.NewOptions(total,
		progressbar.OptionSetVisibility(err == nil && info.Mode()&os.ModeCharDevice != 0),
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetDescription(label),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionOnCompletion(func() { os.Stderr.WriteString("\n") }),
	)
}
