package cli

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Progress returns a progress bar on standard error. The bar is hidden if standard error is not a terminal.
func Progress(label string, total int) *progressbar.ProgressBar {
	return newBar(label, int64(total), progressbar.OptionShowCount())
}

// ProgressBytes returns a progress bar of bytes, with rate and remaining time. The caller sets the total once it is
// known.
func ProgressBytes(label string) *progressbar.ProgressBar {
	return newBar(label, 0, progressbar.OptionShowBytes(true), progressbar.OptionShowTotalBytes(true))
}

func newBar(label string, total int64, more ...progressbar.Option) *progressbar.ProgressBar {
	info, err := os.Stderr.Stat()
	return progressbar.NewOptions64(total, append([]progressbar.Option{
		progressbar.OptionSetVisibility(err == nil && info.Mode()&os.ModeCharDevice != 0),
		progressbar.OptionSetWriter(os.Stderr),
		progressbar.OptionSetDescription(label),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionOnCompletion(func() { os.Stderr.WriteString("\n") }),
	}, more...)...)
}
