package house_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
)

// rooms are the folders in the picture of imports; a nested folder precedes its parent. The picture splits internal/
// by kind.
var rooms = []string{
	"wire/task", "wire", "randomizer", "accountant", "protocols", "planner", "shufflerclient", "verifier",
	"relay", "issuer", "wasm", "cmd", "www", "bench", "deploy", "beam", "lab", "internal/testing",
}

// kinds groups the folders of internal/ into rooms: imports between two kinds go in one direction only.
var kinds = map[string][]string{
	"internal: ground":      {"decimal", "display", "durable", "invalid", "rollback", "secret"},
	"internal: servers":     {"cli", "clock", "service", "table", "taskstream"},
	"internal: statistics":  {"ledger", "openloop"},
	"internal: deployments": {"quickstart"},
}

// roomOf returns the room of a package.
func roomOf(t *testing.T, pkg string) string {
	t.Helper()
	for _, room := range rooms {
		if within(pkg, room) {
			return room
		}
	}
	folder, ok := strings.CutPrefix(pkg, "internal/")
	for kind, folders := range kinds {
		if slices.Contains(folders, folder) {
			return kind
		}
	}
	require.True(t, ok, "%s is in no room", pkg)
	require.Fail(t, "a folder without a kind", "%s: give it one in kinds and a line in docs/architecture.md", pkg)
	return ""
}

// readModules returns the packages of all modules of the repository.
func readModules(t *testing.T) map[string]*goPackage {
	t.Helper()
	packages := map[string]*goPackage{}
	for _, module := range modules {
		maps.Copy(packages, readPackages(t, module))
	}
	return packages
}

// roomImports returns the rooms that each room imports directly.
func roomImports(t *testing.T, packages map[string]*goPackage) map[string]map[string]bool {
	t.Helper()
	direct := map[string]map[string]bool{}
	for pkg, p := range packages {
		from := roomOf(t, pkg)
		if direct[from] == nil {
			direct[from] = map[string]bool{}
		}
		for _, imported := range p.imports {
			if to := roomOf(t, imported); to != from {
				direct[from][to] = true
			}
		}
	}
	return direct
}

// withoutDetours removes imports that also exist indirectly.
func withoutDetours(direct map[string]map[string]bool) map[string]map[string]bool {
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

// floorOf is 0 for a room without imports, else one more than the highest floor that it imports.
func floorOf(imports map[string]map[string]bool, room string) (floor int) {
	for below := range imports[room] {
		floor = max(floor, 1+floorOf(imports, below))
	}
	return floor
}

// TestRoomsImportOneWay: rooms do not import each other in a cycle, so each is above its imports.
func TestRoomsImportOneWay(t *testing.T) {
	packages := readModules(t)
	imports := map[string][]string{}
	for room, all := range roomImports(t, packages) {
		imports[room] = slices.Sorted(maps.Keys(all))
	}
	require.Empty(t, circle(imports), "rooms that import each other")
	for kind, folders := range kinds {
		for _, folder := range folders {
			require.Contains(t, packages, "internal/"+folder, "%s has no such folder", kind)
		}
	}
}

// TestMapOfInternal: docs/architecture.md has a line for each folder of internal/, with its kind.
func TestMapOfInternal(t *testing.T) {
	var want, got []string
	for kind, folders := range kinds {
		for _, folder := range folders {
			want = append(want, strings.TrimPrefix(kind, "internal: ")+" `internal/"+folder+"`")
		}
	}
	for _, row := range doctest.Table(t, "docs/architecture.md", "kind", "folder") {
		got = append(got, row[0]+" "+row[1])
	}
	require.ElementsMatch(t, want, got)
	page, err := os.ReadFile("docs/architecture.md")
	require.NoError(t, err)
	for _, folder := range testFolders(t) {
		require.Contains(t, string(page), "| `internal/testing/"+folder+"` |")
	}
}

// testFolders returns the folders of internal/testing.
func testFolders(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir("internal/testing")
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestPictureOfImports: docs/images/imports.svg shows the current imports. After a change: go test -run
// PictureOfImports ./internal/testing/house -update
func TestPictureOfImports(t *testing.T) {
	const file = "docs/images/imports.svg"
	drawn := drawImports(t, withoutDetours(roomImports(t, readModules(t))))
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(drawn), 0o644))
	}
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, drawn, string(kept), "the picture is old: go test -run PictureOfImports ./internal/testing/house -update")
}

// The geometry of the picture, in pixels.
const (
	pictureWidth = 980
	roomWidth    = 164
	roomHeight   = 34
	lineHeight   = 13 // of the folders listed in a room of internal/
	floorGap     = 50
)

// position is the middle of a box's upper side, and the height of the box.
type position struct{ x, y, height int }

// listed returns the folders of a kind in lines that fit its room.
func listed(t *testing.T, room string) (lines []string) {
	t.Helper()
	folders := kinds[room]
	if room == "internal/testing" {
		folders = testFolders(t)
	}
	for _, folder := range folders {
		if n := len(lines); n > 0 && len(lines[n-1])+len(folder) < 27 {
			lines[n-1] += " " + folder
		} else {
			lines = append(lines, folder)
		}
	}
	return lines
}

// arrange places a row of rooms for each floor, the lowest at the bottom.
func arrange(t *testing.T, imports map[string]map[string]bool) (at map[string]position, height int) {
	floors := map[int][]string{}
	for _, room := range slices.Sorted(maps.Keys(imports)) {
		floor := floorOf(imports, room)
		floors[floor] = append(floors[floor], room)
	}
	at, y := map[string]position{}, 20
	for floor := len(floors) - 1; floor >= 0; floor-- {
		highest := 0
		for i, room := range floors[floor] {
			x := pictureWidth * (2*i + 1) / (2 * len(floors[floor]))
			at[room] = position{x, y, roomHeight + lineHeight*len(listed(t, room))}
			highest = max(highest, at[room].height)
		}
		y += highest + floorGap
	}
	return at, y - floorGap + 20
}

// drawImports draws the rooms, and a line for each import.
func drawImports(t *testing.T, imports map[string]map[string]bool) string {
	at, height := arrange(t, imports)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" `+
		`aria-label="Which folder imports which, from the commands down to the samplers">`+"\n", pictureWidth, height)
	b.WriteString("<style>text{font:14px sans-serif;text-anchor:middle;fill:#1f2933}.in{font-size:11px}" +
		"rect{fill:#f5f7fa;stroke:#52606d}path{fill:none;stroke:#7b8794}@media(prefers-color-scheme:dark)" +
		"{text{fill:#f5f7fa}rect{fill:#323f4b;stroke:#9aa5b1}}</style>\n")
	for _, from := range slices.Sorted(maps.Keys(imports)) {
		for _, to := range slices.Sorted(maps.Keys(imports[from])) {
			a, z := at[from], at[to]
			bottom := a.y + a.height
			fmt.Fprintf(&b, `<path d="M%d %dC%d %d %d %d %d %d"/>`+"\n",
				a.x, bottom, a.x, bottom+floorGap/2, z.x, z.y-floorGap/2, z.x, z.y)
		}
	}
	for _, room := range slices.Sorted(maps.Keys(imports)) {
		p := at[room]
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="6"/><text x="%d" y="%d">%s</text>`+"\n",
			p.x-roomWidth/2, p.y, roomWidth, p.height, p.x, p.y+22, room)
		for i, line := range listed(t, room) {
			fmt.Fprintf(&b, `<text class="in" x="%d" y="%d">%s</text>`+"\n", p.x, p.y+37+lineHeight*i, line)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}
