package verifier

import (
	"github.com/doona-dp/doona/verifier/finding"
)

// The verdicts of [Report.verdict].
const (
	verdictFaults   = "Not everything added up."
	verdictNothing  = "Nothing has been added yet."
	verdictAway     = "The last relay does not answer, so batches may be missing."
	verdictLate     = "Signed ends of epochs are overdue, so batches may be missing."
	verdictBudget   = "The budget is spent: later results are withheld."
	verdictUnusable = "Too many messages are missing for an estimate."
	verdictDropped  = "All batches match their signed manifests. Relays dropped slots that they could not open, or that " +
		"were repeated."
	verdictGood = "Everything added up."
)

// verdict says in words whether everything adds up. It does not say yes before anything was added, nor while batches
// may be missing that this verifier does not know.
func (r *Report) verdict() string {
	switch p := r.Progress; {
	case finding.Faults(r.Findings) != nil:
		return verdictFaults
	case len(r.Ledger.Withheld) > 0:
		return verdictBudget
	case r.MessagesSent == 0:
		return verdictNothing
	case p != nil && p.Contact == ContactAway:
		return verdictAway
	case p != nil && len(p.Late) > 0:
		return verdictLate
	case r.Unusable() != "":
		return verdictUnusable
	case len(r.Findings) > 0:
		return verdictDropped
	}
	return verdictGood
}

// Unusable says why there is no estimate, or why an estimate is shown anyway. It is empty if the estimate is usable,
// and before the first batch.
func (r *Report) Unusable() string {
	if r.Usable || r.UnusableBecause == noBatch {
		return ""
	}
	out := "Unusable: " + r.UnusableBecause + "."
	if r.Override != "" {
		out += " Override: " + r.Override + "."
	}
	return out
}

// Severity classifies the verdict for display: "good", "bad", or "wait" while it is not known.
func (r *Report) Severity() string {
	switch {
	case finding.Faults(r.Findings) != nil || r.Unusable() != "":
		return "bad"
	case r.Verdict == verdictGood || r.Verdict == verdictDropped:
		return "good"
	}
	return "wait"
}
