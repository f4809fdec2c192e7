package task_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
)

// mostOrigins returns the largest allowed number of origins, each of the maximum length.
func mostOrigins() (origins []string) {
	for i := range 64 {
		host := fmt.Sprintf("%02d%s", i, strings.Repeat("."+strings.Repeat("a", 48), 5))
		origins = append(origins, "https://"+host[:255-len("https://")])
	}
	slices.Sort(origins)
	return origins
}

// TestOriginsAreBounded: an origin one byte longer than allowed must be refused. The error must show the origin and say
// what is allowed.
func TestOriginsAreBounded(t *testing.T) {
	s := sample()
	s.Clients.Origins = mostOrigins()
	require.NoError(t, s.Validate())
	require.Less(t, len(s.Canonical()), 20_000)
	require.Len(t, s.Clients.Origins[63], 255)
	s.Clients.Origins[63] += "a"
	var refused *invalid.FieldError
	require.ErrorAs(t, s.Validate(), &refused)
	require.Equal(t, "clients.origins", refused.Field)
	require.ErrorContains(t, refused, "at most 255 characters")
	require.ErrorContains(t, refused, s.Clients.Origins[63])
}
