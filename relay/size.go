package relay

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/relay/internal/ingress"
	"github.com/doona-dp/doona/relay/internal/tasks"
)

// Size is a number of bytes, as [Config.MaxMemory] has it, written as "512KiB", "256MiB" or "4GiB".
type Size int64

var sizeUnits = []struct {
	name  string
	bytes Size
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// UnmarshalText reads a whole number of KiB, MiB or GiB, below 2^20.
func (s *Size) UnmarshalText(text []byte) error { return s.parse("max_memory", text) }

// DiskSize is a [Size] of [OwnerConfig].
type DiskSize Size

// UnmarshalText is [Size.UnmarshalText] for another setting.
func (s *DiskSize) UnmarshalText(text []byte) error { return (*Size)(s).parse("bytes", text) }

func (s *Size) parse(field string, text []byte) error {
	for _, unit := range sizeUnits {
		if number, ok := strings.CutSuffix(string(text), unit.name); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 20)
			if err != nil {
				break
			}
			*s = Size(n) * unit.bytes
			return nil
		}
	}
	return invalid.Field(field, strconv.Quote(string(text)),
		"1MiB to 1024GiB, as a whole number and a unit, such as 256MiB")
}

// String returns the size in the largest unit that divides it, in the format that UnmarshalText reads.
func (s Size) String() string {
	for _, unit := range sizeUnits {
		if s >= unit.bytes && s%unit.bytes == 0 {
			return fmt.Sprint(int64(s/unit.bytes), unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", int64(s))
}

func (s Size) ceil() Size { return (s + 1<<20 - 1) &^ (1<<20 - 1) }

// checkMemory returns an error unless every task can still take its largest report within MaxMemory while all other
// tasks use their whole share of it. There may be up to limit tasks, where a stream counts as one.
func (c *Config) checkMemory(all []*tasks.Hosted, sets []*tasks.HostedSet, limit int) error {
	need := int64(0)
	for _, s := range all {
		if s.Hop == 0 {
			need = max(need, int64(limit)*ingress.MostReportBytes(s))
		}
	}
	for _, s := range sets {
		if s.First() != nil && s.First().Hop == 0 {
			need = max(need, int64(limit)*ingress.ReportBytes(int64(s.BodySize())))
		}
	}
	if int64(c.MaxMemory) < need {
		return invalid.Field("max_memory", c.MaxMemory.String(),
			fmt.Sprintf("at least %s for reports of these tasks", Size(need).ceil()))
	}
	return nil
}
