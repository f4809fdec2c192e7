package cli

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/display"
)

const flagHosts = "hosts"

// HostsFlag is the value of --hosts: the host names that requests for a program's page may use.
type HostsFlag []string

// Register adds the flag to a command.
func (f *HostsFlag) Register(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar((*[]string)(f), flagHosts, nil,
		"host names that requests for the page may use, besides localhost and IP addresses; comma-separated")
}

// Check returns an error if a name is invalid.
func (f HostsFlag) Check() error { return FlagError(display.CheckHosts(flagHosts, f)) }

// Hosts returns the host names that requests for the page at address listen may use.
func (f HostsFlag) Hosts(cmd *cobra.Command, listen string) *display.Hosts {
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	return display.NewHosts("--"+flagHosts, log, listen, f)
}
