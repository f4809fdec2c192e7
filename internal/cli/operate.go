package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/wire/task"
)

type versionOutput struct {
	Program  string `json:"program"`
	Version  string `json:"version"`            // version of the module; "(devel)" if built from a folder
	Revision string `json:"revision,omitempty"` // commit of the repository; ends with "+" if files were changed
	Go       string `json:"go"`
	Format   int    `json:"format"` // version of the formats of tasks, reports and batches
}

// Version returns the command "version" of a program.
func Version(program string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: "Version prints the version of the program, the revision of the repository that it was built from, and\n" +
			"the version of its formats.",
		Example: "  " + program + " version --json",
		Args:    NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := versionOf(program)
			return Print(cmd, b, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s, format %d, %s", b.Program,
					b.Version, b.Revision, b.Format, b.Go)), " "))
				return err
			})
		},
	}
}

func versionOf(program string) versionOutput {
	b := versionOutput{Program: program, Version: "(unknown)", Format: task.Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version, b.Go = info.Main.Version, info.GoVersion
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Revision = s.Value + b.Revision
		case s.Key == "vcs.modified" && s.Value == "true":
			b.Revision += "+"
		}
	}
	return b
}

// Health returns a program's command "health". admin returns the admin address in a configuration.
func Health(program string, admin func(config string) (string, error)) *cobra.Command {
	var config, address string
	var live bool
	cmd := &cobra.Command{
		Use:   "health --config " + program + ".yaml | --admin URL",
		Short: "Ask a running " + program + " whether it is ready",
		Long: "Health requests /readyz at the admin address. It exits with status 0 if the " + program + " is ready, otherwise " +
			"with\nstatus 1 and the reason. With --live it requests /healthz, which answers while the process lives. A\n" +
			"supervisor that restarts the program asks so: a restart mends neither a database nor a disk. Use it in an\n" +
			"image that has no shell or HTTP client.",
		Example: "  " + program + " health --admin http://127.0.0.1:9081",
		Args:    NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (config == "") == (address == "") {
				return Usagef("missing flag: want either --config or --admin")
			}
			base := address
			if config != "" {
				listen, err := admin(config)
				if err != nil {
					return err
				}
				if base, err = adminURL(config, listen); err != nil {
					return err
				}
			}
			path, word := "readyz", "ready"
			if live {
				path, word = "healthz", "alive"
			}
			if err := askHealth(cmd.Context(), base, path); err != nil {
				return err
			}
			return Print(cmd, map[string]bool{word: true}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, word)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration file ("+program+".yaml), which has an admin address")
	cmd.Flags().BoolVar(&live, "live", false, "ask only whether the process lives (/healthz)")
	cmd.Flags().StringVar(&address, "admin", "", "base URL of the admin address, such as http://127.0.0.1:9081")
	return cmd
}

// adminURL returns the URL, on this machine, of a program that listens at an address.
func adminURL(config, listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("couldn't find the admin address in %s: it says %q", config, listen)
	}
	switch at, err := netip.ParseAddr(host); {
	case host == "" || err == nil && at == netip.IPv4Unspecified():
		host = "127.0.0.1" // a number and no name, because an image may have no resolver
	case err == nil && at == netip.IPv6Unspecified():
		host = "::1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

// askHealth returns an error unless a path of the admin address answers with success within 10 seconds.
func askHealth(ctx context.Context, base, path string) error {
	to, err := url.Parse(base)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" {
		return Usagef("invalid admin %q: want a URL such as http://127.0.0.1:9081", base)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.JoinPath(path).String(), nil)
	if err != nil {
		return err
	}
	resp, err := direct.Do(req)
	if err != nil {
		return fmt.Errorf("couldn't ask: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		return nil
	}
	return fmt.Errorf("not ready: %s", Answer(resp))
}

// Answer returns an HTTP answer's status and the first 1024 bytes of its body.
func Answer(resp *http.Response) string {
	why, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	return strings.TrimSuffix(resp.Status+": "+strings.TrimSpace(string(why)), ": ")
}

// direct uses no proxy and follows no redirect. No proxy serves an admin address, and an answer from another address
// would be about another program.
var direct = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// MaxStatus is the maximum number of bytes that a command reads from an admin address.
const MaxStatus = 64 << 20
