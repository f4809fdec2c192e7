package house_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rooms are the folders that the picture of the house shows, the longest name first where one is in
// another. What is in no room, such as internal/, is left out.
var rooms = []string{
	"wire/task", "wire", "randomizer", "accountant", "protocols", "planner", "shufflerclient", "verifier",
	"relay", "issuer", "wasm", "cmd", "www", "bench", "deploy",
}

// roomOf returns the room that a package is in, or "".
func roomOf(pkg string) string {
	for _, room := range rooms {
		if within(pkg, room) {
			return room
		}
	}
	return ""
}

// roomImports returns for every room the rooms it imports itself and not only through others.
func roomImports(packages map[string]*goPackage) map[string]map[string]bool {
	direct := map[string]map[string]bool{}
	for pkg, p := range packages {
		from := roomOf(pkg)
		if from == "" {
			continue
		}
		if direct[from] == nil {
			direct[from] = map[string]bool{}
		}
		for _, imported := range p.imports {
			if to := roomOf(imported); to != "" && to != from {
				direct[from][to] = true
			}
		}
	}
	reduced := map[string]map[string]bool{}
	for from, all := range direct {
		reduced[from] = maps.Clone(all)
		for to := range all {
			for other := range all {
				if other != to && leadsTo(direct, other, to) {
					delete(reduced[from], to)
				}
			}
		}
	}
	return reduced
}

func leadsTo(imports map[string]map[string]bool, from, to string) bool {
	for next := range imports[from] {
		if next == to || leadsTo(imports, next, to) {
			return true
		}
	}
	return false
}

// floorOf is 0 for a room that imports no other, and else one above the highest it imports.
func floorOf(imports map[string]map[string]bool, room string) (floor int) {
	for below := range imports[room] {
		floor = max(floor, 1+floorOf(imports, below))
	}
	return floor
}

// TestPictureOfImports: docs/images/imports.svg is drawn from the imports as they are. After a change:
// go test -run PictureOfImports ./internal/testing/house -update
func TestPictureOfImports(t *testing.T) {
	const file = "docs/images/imports.svg"
	drawn := drawImports(roomImports(readPackages(t)))
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(drawn), 0o644))
	}
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, drawn, string(kept), "the picture is old: go test -run PictureOfImports ./internal/testing/house -update")
}

// The geometry of the picture, in pixels.
const (
	pictureWidth = 860
	roomWidth    = 124
	roomHeight   = 34
	floorHeight  = 84
)

type place struct{ x, y int }

// drawImports draws a row for each floor, the lowest at the bottom, and a line for each import.
func drawImports(imports map[string]map[string]bool) string {
	floors := map[int][]string{}
	for _, room := range slices.Sorted(maps.Keys(imports)) {
		floor := floorOf(imports, room)
		floors[floor] = append(floors[floor], room)
	}
	at := map[string]place{}
	for floor, names := range floors {
		for i, room := range names {
			at[room] = place{pictureWidth * (2*i + 1) / (2 * len(names)),
				20 + floorHeight*(len(floors)-1-floor) + roomHeight/2}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" `+
		`aria-label="Which folder imports which, from the commands down to the samplers">`+"\n",
		pictureWidth, 40+floorHeight*(len(floors)-1)+roomHeight)
	b.WriteString("<style>text{font:14px sans-serif;text-anchor:middle;fill:#1f2933}rect{fill:#f5f7fa;stroke:#52606d}" +
		"path{fill:none;stroke:#7b8794}@media(prefers-color-scheme:dark){text{fill:#f5f7fa}rect{fill:#323f4b;stroke:#9aa5b1}}</style>\n")
	for _, from := range slices.Sorted(maps.Keys(imports)) {
		for _, to := range slices.Sorted(maps.Keys(imports[from])) {
			a, z := at[from], at[to]
			fmt.Fprintf(&b, `<path d="M%d %dC%d %d %d %d %d %d"/>`+"\n",
				a.x, a.y+roomHeight/2, a.x, a.y+floorHeight/2, z.x, z.y-floorHeight/2, z.x, z.y-roomHeight/2)
		}
	}
	for _, room := range slices.Sorted(maps.Keys(imports)) {
		p := at[room]
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="6"/><text x="%d" y="%d">%s</text>`+"\n",
			p.x-roomWidth/2, p.y-roomHeight/2, roomWidth, roomHeight, p.x, p.y+5, room)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
