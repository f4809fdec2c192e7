package world_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/faultdisk"
	"github.com/doona-dp/doona/internal/testing/stattest"
)

// bug is a bug that a test plants into the parties of a world, to check that worlds find it. The zero value is none.
type bug struct {
	name   string
	breaks string           // the invariant that it violates
	plant  [2]string        // for each relay, the argument of [plantIn]
	tokens bool             // only worlds with tokens show it
	add    []fault          // faults that show it
	quiet  bool             // no other faults
	brief  bool             // CI plants it, too
	disk   faultdisk.Broken // of every party's disk
}

// planted are the bugs that worlds must find.
var planted = []*bug{
	{name: bugAckEarly, breaks: "lost without a finding", plant: [2]string{bugAckEarly, ""}},
	{name: bugTwice, breaks: "a slot came out twice: of relay1", plant: [2]string{bugTwice, ""},
		brief: true},
	{name: bugReplays, breaks: "a slot came out twice: of relay2",
		plant: [2]string{bugTwice, bugReplays}, brief: true},
	{name: bugReplays + ", as the verifier sees it", breaks: "a slot reached the verifier twice",
		plant: [2]string{bugTwice, bugReplays}},
	{name: bugQuota, breaks: "reports beyond the quota", plant: [2]string{bugQuota, ""}},
	{name: bugSpent, breaks: "reports beyond the quota", plant: [2]string{bugSpent, ""}, tokens: true},
	{name: bugSmall, breaks: "below the rule", plant: [2]string{bugSmall, ""}},
	{name: bugConfirm, breaks: "confirmed and still there", plant: [2]string{bugConfirm, ""}},
	{name: bugEquivocates, breaks: "equivocation accepted", plant: [2]string{"", bugEquivocates},
		add: []fault{ofLink(faultNetwork, worldLead, 30*time.Second, [2]string{"relay2", "relay1"}, linkCut),
			ofLink(faultLie, worldLead+30*time.Second, 20*time.Second, [2]string{"relay2", "relay1"}, linkLie)}},
	{name: bugClock, breaks: "keys erased early", plant: [2]string{bugClock, ""}, add: []fault{{
		50 * time.Second, faultClock, "relay1: 10m", func(w *world) {
			w.parties["relay1"].setClock(10 * time.Minute)
			time.Sleep(30 * time.Second)
			w.parties["relay1"].setClock(0)
		}}}},
	{name: "issuer on a lost store, its mark and ties lost too", breaks: "tokens beyond the quota", tokens: true,
		add: []fault{{60 * time.Second, faultStateRollback, "all of issuer to the start", func(w *world) {
			w.parties["issuer"].restoreAll(0)
		}}}},
	{name: bugNumbers, breaks: "a bad number was taken", plant: [2]string{bugNumbers, ""},
		quiet: true, brief: true, add: []fault{ofNumbers(worldLead+50*time.Second, 0, false, 1)}},
	{name: bugEndless, breaks: "batches without end", plant: [2]string{"", bugEndless},
		quiet: true, brief: true, add: []fault{ofEndless(worldLead, 30*time.Second)}},
	{name: bugJunk, breaks: "junk was taken", plant: [2]string{"", bugJunk},
		quiet: true, brief: true, add: []fault{ofJunkAnswers(worldLead, 30*time.Second,
			[2]string{"relay2", "relay1"}, linkJunk, 0)}},
	// An honest neighbour would tell a relay that all its state was rolled back. So all three are rolled back.
	{name: "state rollback of both relays and the verifier", breaks: "two batches under one number",
		add: []fault{rollBackAll("relay1"), rollBackAll("relay2"), rollBackAll("verifier")}},
}

// rollBackAll rolls all parts of a party back to the first epoch's beginning, in the second epoch.
func rollBackAll(name string) fault {
	to := worldLead + worldLength + 5*time.Second
	return fault{to + 45*time.Second, faultStateRollback, "all of " + name, func(w *world) { w.parties[name].restoreAll(to) }}
}

// faults adds the faults that show the bug to the drawn ones.
func (b *bug) faults(_ *rand.Rand, drawn []fault) []fault {
	if b.quiet {
		drawn = nil
	}
	return append(drawn, b.add...)
}

// mayBeEarly is the number of epochs whose keys may be erased early: one if clocks are wrong.
func (b *bug) mayBeEarly() int { return 1 }

// needsSnapshots reports whether some party is rolled back.
func (b *bug) needsSnapshots(faults []fault) bool {
	return slices.ContainsFunc(faults, func(f fault) bool { return f.kind == faultStateRollback })
}

// restoreAll kills a party and restores its whole folder to an earlier moment.
func (p *party) restoreAll(to time.Duration) {
	p.crash([]int{0}, time.Second, func() error {
		files, err := filepath.Glob(filepath.Join(p.folder, "*"))
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := os.RemoveAll(file); err != nil {
				return err
			}
		}
		for name, content := range p.at(to) {
			if err := p.put(name, content); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestWorldFindsPlantedBugs: for every planted bug, the worlds of a few seeds violate the invariant that it should. The
// log gives the number of seeds. CI plants a few bugs, the long form all.
func TestWorldFindsPlantedBugs(t *testing.T) {
	for _, b := range planted {
		if !b.brief && !stattest.Long {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			found := func(w *world) bool {
				return slices.ContainsFunc(w.account.broken,
					func(line string) bool { return strings.HasPrefix(line, b.breaks) })
			}
			for seed := uint64(0); ; seed++ {
				require.Less(t, seed, uint64(20), "not found")
				if found(playWorld(t, seed, b)) {
					t.Logf("found after %d seeds, by: %s", seed+1, b.breaks)
					return
				}
			}
		})
	}
}
