//go:build doona_small && doona_set

package registry

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/augmented"
)

// all has the one protocol that a table of a set may have (docs/SPEC.md, section 15).
var all = []protocols.Protocol{&augmented.SetProtocol{}}
