package house_test

import (
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
	"github.com/doona-dp/doona/protocols/registry"
)

// rooms are the boxes in docs/images/imports.svg, named by folder, a nested folder before its parent. For the folders
// of internal/, see kinds.
var rooms = []string{
	"wire/task", "wire", "randomizer", "accountant", "protocols", "planner", "shufflerclient", "verifier",
	"relay", "issuer", "wasm", "cmd", "www", "bench", "deploy", "beam", "lab", "internal/testing",
}

// kinds groups the folders of internal/ into further boxes. Two kinds must not import each other.
var kinds = map[string][]string{
	"internal: ground":      {"decimal", "display", "durable", "invalid", "rollback", "secret"},
	"internal: servers":     {"cli", "clock", "service", "table", "taskstream"},
	"internal: statistics":  {"ledger", "openloop"},
	"internal: deployments": {"quickstart"},
}

// roomOf returns the box of the picture that contains a package.
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
	require.True(t, ok, "package %s is in no box of the picture: add its folder to rooms", pkg)
	require.Fail(t, "a folder of internal/ is not in kinds", "%s: give it one in kinds and a line in docs/architecture.md", pkg)
	return ""
}

func readModules(t *testing.T) map[string]*goPackage {
	t.Helper()
	packages := map[string]*goPackage{}
	for _, module := range modules {
		maps.Copy(packages, readPackages(t, module))
	}
	return packages
}

// roomImports returns, for each box, the boxes whose packages it imports directly.
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

// withoutDetours removes a direct import if the same box is also imported through another box.
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

// floorOf returns the row of a box, from 0 at the bottom: one above the highest box that it imports.
func floorOf(imports map[string]map[string]bool, room string) (floor int) {
	for below := range imports[room] {
		floor = max(floor, 1+floorOf(imports, below))
	}
	return floor
}

// TestRoomsImportOneWay: the boxes of the picture do not import each other in a cycle.
func TestRoomsImportOneWay(t *testing.T) {
	packages := readModules(t)
	imports := map[string][]string{}
	for room, all := range roomImports(t, packages) {
		imports[room] = slices.Sorted(maps.Keys(all))
	}
	require.Empty(t, circle(imports), "these import each other in a cycle")
	for kind, folders := range kinds {
		for _, folder := range folders {
			require.Contains(t, packages, "internal/"+folder, "kinds: %s lists a folder without packages", kind)
		}
	}
}

// TestMapOfInternal: docs/architecture.md lists the folders of internal/ with their kinds, and those of
// internal/testing.
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

// mapped are the folders all of whose source files docs/architecture.md lists.
var mapped = []string{
	"accountant", "cmd", "internal", "issuer", "planner", "protocols", "randomizer", "relay", "shufflerclient",
	"verifier", "wasm", "wire", "www/sdk",
}

// TestMapOfFiles: the tables "Files, folder by folder" of docs/architecture.md list every source file of the mapped
// folders once, except tests, and no other file. The folder protocols/* stands for every protocol's.
func TestMapOfFiles(t *testing.T) {
	var want, got []string
	doctest.EachFile(t, ".", func(name string) {
		in := func(folder string) bool { return within(name, folder) }
		kind := slices.Contains([]string{".css", ".go", ".html", ".js", ".mjs", ".ts"}, path.Ext(name))
		test := strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".spec.ts") || in("internal/testing")
		if kind && !test && slices.ContainsFunc(mapped, in) {
			want = append(want, name)
		}
	})
	file := regexp.MustCompile("(?:^|; )`([\\w.-]+\\.(?:css|go|html|js|mjs|ts))` ")
	for _, row := range doctest.Table(t, "docs/architecture.md", "in", "files, and what each does") {
		folders := []string{strings.Trim(row[0], "`")}
		if folders[0] == "protocols/*" {
			folders = nil
			for _, p := range registry.All() {
				folders = append(folders, "protocols/"+p.ProtocolName()+"/")
			}
		}
		for _, m := range file.FindAllStringSubmatch(row[1], -1) {
			for _, folder := range folders {
				got = append(got, folder+m[1])
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(t, want, got, "docs/architecture.md: list each file by the form \"; `name` what it does\"")
}

func testFolders(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir("internal/testing")
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestPictureOfImports: docs/images/imports.svg shows the current imports. To draw it again: go test -run
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

// Sizes in the picture, in pixels.
const (
	pictureWidth = 980
	roomWidth    = 164
	roomHeight   = 34
	lineHeight   = 13 // of a text line that lists folders in a box
	floorGap     = 50
)

// position is the middle of a box's upper side, and the box's height, in pixels.
type position struct{ x, y, height int }

// listed returns the folders of a kind as lines of text that fit into its box.
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

// arrange returns the positions of all boxes, one row per floor, the lowest floor at the bottom.
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
