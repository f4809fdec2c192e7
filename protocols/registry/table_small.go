//go:build doona_small && !doona_set

package registry

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/augmented"
	"github.com/doona-dp/doona/protocols/histogram"
	"github.com/doona-dp/doona/protocols/realsum"
)

// all has the protocols of doona-small.wasm: one message a client, or noise by relays. That is what most sites ask.
var all = []protocols.Protocol{
	&histogram.Protocol{},
	&realsum.Protocol{},
	&augmented.Protocol{},
}
