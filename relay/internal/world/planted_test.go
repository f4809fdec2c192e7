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
	"github.com/doona-dp/doona/shufflerclient"
)

// bug is a bug that a test plants into the parties of a world, to check that worlds find it. The zero value is no bug.
type bug struct {
	name   string
	breaks string           // beginning of the violation that must be found
	plant  [2]string        // for each relay, the bug for [plantIn]
	tokens bool             // only worlds with tokens show it
	rare   bool             // only worlds with rare events show it
	sets   bool             // only worlds with a set show it
	add    []fault          // faults that make the bug visible
	quiet  bool             // without other faults
	brief  bool             // also in the short form
	disk   faultdisk.Broken // defect of every party's disk
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
	{name: bugSmall, breaks: "fewer clients than n_min", plant: [2]string{bugSmall, ""}},
	{name: bugConfirm, breaks: "confirmed but not deleted", plant: [2]string{bugConfirm, ""}},
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
	{name: bugNumbers, breaks: "a bad number was accepted", plant: [2]string{bugNumbers, ""},
		quiet: true, brief: true, add: []fault{ofNumbers(worldLead+50*time.Second, 0, false, 1)}},
	{name: bugEndless, breaks: "batches without end", plant: [2]string{"", bugEndless},
		quiet: true, brief: true, add: []fault{ofEndless(worldLead, 30*time.Second)}},
	{name: bugJunk, breaks: "junk was accepted", plant: [2]string{"", bugJunk},
		quiet: true, brief: true, add: []fault{ofJunkAnswers(worldLead, 30*time.Second,
			[2]string{"relay2", "relay1"}, linkJunk, 0)}},
	{name: bugForgets, breaks: "events beyond the allowance", rare: true},
	{name: bugTables, breaks: "a submission in some tables only", plant: [2]string{bugTables, ""}, sets: true},
	{name: bugForgetsEvents, breaks: "events beyond the allowance", sets: true},
	{name: bugForgetsReports, breaks: "two reports of one epoch", sets: true},
	{name: bugForgetsDays, breaks: "two submissions of one day", sets: true},
	// If all of one relay's state is rolled back, an honest other party reveals it. So all three are rolled back.
	{name: "state rollback of both relays and the verifier", breaks: "two batches under one number",
		add: []fault{rollBackAll("relay1"), rollBackAll("relay2"), rollBackAll("verifier")}},
}

// rollBackAll rolls a party's whole folder back, from 50 s to 5 s into the second epoch.
func rollBackAll(name string) fault {
	to := worldLead + worldLength + 5*time.Second
	return fault{to + 45*time.Second, faultStateRollback, "all of " + name, func(w *world) { w.parties[name].restoreAll(to) }}
}

// faults returns the drawn faults and those that make the bug visible.
func (b *bug) faults(_ *rand.Rand, drawn []fault) []fault {
	if b.quiet {
		drawn = nil
	}
	return append(drawn, b.add...)
}

// mayBeEarly returns how many epochs' keys may be erased early: one, because clocks may be wrong.
func (b *bug) mayBeEarly() int { return 1 }

// needsSnapshots reports whether a fault rolls a party back.
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

// TestWorldFindsPlantedBugs: for every planted bug, a world of the first 20 seeds must violate the right invariant. The
// short form plants a few bugs, the long form all.
func TestWorldFindsPlantedBugs(t *testing.T) {
	for _, b := range planted {
		if !b.brief && !stattest.Long {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			found := func(w *world) bool {
				return slices.ContainsFunc(w.broken(),
					func(line string) bool { return strings.HasPrefix(line, b.breaks) })
			}
			for seed := uint64(0); ; seed++ {
				require.Less(t, seed, uint64(20), "no world found the bug")
				if found(playWorld(t, seed, b)) {
					t.Logf("found after %d seeds, by: %s", seed+1, b.breaks)
					return
				}
			}
		})
	}
}

// forgets are what browsers with a set forget when their processes start, by the planted bug.
var forgets = map[string]func(line *shufflerclient.Line){
	bugForgetsDays: func(line *shufflerclient.Line) { line.Set.Day = 0 },
	bugForgetsEvents: func(line *shufflerclient.Line) {
		for i := range line.Set.Tables {
			line.Set.Tables[i].Events = nil
		}
	},
	bugForgetsReports: func(line *shufflerclient.Line) {
		for i := range line.Set.Tables {
			line.Set.Tables[i].Runs = nil
		}
	},
}
