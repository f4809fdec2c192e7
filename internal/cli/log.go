package cli

import (
	"crypto/ed25519"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/keyfile"
)

// LogFlags are the flags of a server about its log.
type LogFlags struct{ format, level string }

// Register adds the flags to a command.
func (f *LogFlags) Register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.format, "log-format", "text", "text or json: what each line on standard error is")
	cmd.Flags().StringVar(&f.level, flagLevel, "info",
		levels+": what is logged; while the program runs, PUT /log-level at the admin address changes it")
}

// CloseToGroup closes a command's key file to its group, and says so on standard error, as servers do at their start.
func CloseToGroup(stderr io.Writer, file string) error {
	return durable.CloseToGroup(slog.New(slog.NewTextHandler(stderr, nil)), []string{file}, nil)
}

// LoadSign closes a command's signing key file to its group, and reads it.
func LoadSign(stderr io.Writer, file string) (ed25519.PrivateKey, error) {
	if err := CloseToGroup(stderr, file); err != nil {
		return nil, err
	}
	return keyfile.LoadSign(file)
}

const (
	flagLevel = "log-level"
	levels    = "info, warn or error"
)

// Log returns the log that the flags ask for, on the command's standard error. A server passes it to service.Coarse.
func (f *LogFlags) Log(cmd *cobra.Command) (*slog.Logger, error) {
	out, level := cmd.ErrOrStderr(), &slog.LevelVar{}
	log := leveled{level: level}
	switch options := (&slog.HandlerOptions{Level: level}); f.format {
	case "text":
		log.Handler = slog.NewTextHandler(out, options)
	case "json":
		log.Handler = slog.NewJSONHandler(out, options)
	default:
		return nil, Usage(invalid.Field("log-format", strconv.Quote(f.format), "text or json"))
	}
	return slog.New(log), Usage(log.SetLevel(f.level))
}

// leveled is a handler whose level can be changed.
type leveled struct {
	slog.Handler
	level *slog.LevelVar
}

// Level returns the name of the least level that is logged.
func (l leveled) Level() string { return strings.ToLower(l.level.Level().String()) }

// SetLevel sets the least level that is logged: info, warn or error.
func (l leveled) SetLevel(name string) error {
	level, ok := map[string]slog.Level{"info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}[name]
	if !ok {
		return invalid.Field(flagLevel, strconv.Quote(name), levels)
	}
	l.level.Set(level)
	return nil
}
