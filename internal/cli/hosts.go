package cli

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/display"
)

const flagHosts = "hosts"

// HostsFlag is the flag for host names by which a program's page may be requested.
type HostsFlag []string

// Register adds the flag to a command.
func (f *HostsFlag) Register(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar((*[]string)(f), flagHosts, nil,
		"names by which the page may be asked for, besides localhost and IP addresses; comma-separated")
}

// Check returns an error if a name is invalid.
func (f HostsFlag) Check() error { return FlagError(display.CheckHosts(flagHosts, f)) }

// Hosts returns the host names by which a page at an address may be requested.
func (f HostsFlag) Hosts(cmd *cobra.Command, listen string) *display.Hosts {
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	return display.NewHosts("--"+flagHosts, log, listen, f)
}
