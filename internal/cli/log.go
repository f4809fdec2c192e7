package cli

import (
	"log/slog"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/invalid"
)

// LogFlags are the flags of a server about its log.
type LogFlags struct{ format, level string }

// Register adds the flags to a command.
func (f *LogFlags) Register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.format, "log-format", "text", "text or json: what each line on standard error is")
	cmd.Flags().StringVar(&f.level, "log-level", "info",
		"info, warn or error: what is logged; while the program runs, PUT /log-level at the admin address changes it")
}

// Log returns the log that the flags ask for, on the command's standard error. A server passes it to service.Coarse.
func (f *LogFlags) Log(cmd *cobra.Command) (*slog.Logger, error) {
	level := &slog.LevelVar{}
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, Usage(invalid.Field("log-level", strconv.Quote(f.level), "info, warn or error"))
	}
	out, options := cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}
	switch f.format {
	case "text":
		return slog.New(leveled{slog.NewTextHandler(out, options), level}), nil
	case "json":
		return slog.New(leveled{slog.NewJSONHandler(out, options), level}), nil
	}
	return nil, Usage(invalid.Field("log-format", strconv.Quote(f.format), "text or json"))
}

// leveled is a handler whose level can be changed.
type leveled struct {
	slog.Handler
	level *slog.LevelVar
}

// LevelVar returns the variable that holds the handler's level.
func (l leveled) LevelVar() *slog.LevelVar { return l.level }
