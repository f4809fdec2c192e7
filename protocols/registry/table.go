//go:build !doona_small

package registry

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/augmented"
	"github.com/doona-dp/doona/protocols/correlated"
	"github.com/doona-dp/doona/protocols/histogram"
	"github.com/doona-dp/doona/protocols/rappor"
	"github.com/doona-dp/doona/protocols/realsum"
	"github.com/doona-dp/doona/protocols/splitmix"
	"github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/protocols/vectorgrid"
	"github.com/doona-dp/doona/protocols/vectormean"
	"github.com/doona-dp/doona/protocols/vectorsum"
)

var all = []protocols.Protocol{
	&histogram.Protocol{},
	&realsum.Protocol{},
	&splitmix.Protocol{},
	&correlated.Protocol{},
	&rappor.Protocol{},
	&vectorsum.Protocol{},
	&vectorgrid.Protocol{},
	&vectormean.Protocol{},
	&augmented.Protocol{},
	&strings.Protocol{},
}
