package api

import "fmt"

// What a code is about.
const (
	AboutError      = "error"      // a request was refused, or failed
	AboutQuarantine = "quarantine" // a replica is closed, or serves nothing
	AboutRefusal    = "refusal"    // a member will not hear another one
	AboutStart      = "start"      // tidald does not start on a data directory
)

// Explanation says what a code means, to a person who met it.
type Explanation struct {
	Code  string   `json:"code"`
	About []string `json:"about"` // error, quarantine, refusal, start
	Title string   `json:"title"`
	// Means is what happened, and what the member does about it.
	Means string `json:"means"`
	// Try is what an operator can do, one step a line; empty: the answer of the request says it.
	Try []string `json:"try"`
}

// Explanations returns the whole table: what concerns disks and identities first, then every error code
// that has no row of its own.
func Explanations() []Explanation {
	all := diskExplanations()
	seen := map[string]bool{}
	for _, x := range all {
		seen[x.Code] = true
	}
	for _, c := range Codes() {
		if !seen[string(c.Code)] {
			all = append(all, explainCode(c))
		}
	}
	return all
}

func explainCode(c CodeSpec) Explanation {
	x := Explanation{Code: string(c.Code), About: []string{AboutError}, Title: c.Title, Try: []string{}}
	effect := map[Effect]string{EffectNone: "Nothing was changed.", EffectApplied: "The change was made.", EffectUnknown: "It is not known whether anything was changed."}[c.Effect]
	x.Means = fmt.Sprintf("%s HTTP status %d, exit code %d.", effect, c.Status, c.Exit)
	if c.Retryable {
		x.Means += " It is safe to try again."
	}
	return x
}

func diskExplanations() []Explanation {
	const (
		replace    = "tidalctl members replace NAME"
		lookAtDisk = "tidald inspect DIR"
		seeEvents  = "tidalctl events"
	)
	emptyDir := "stop the member, put an empty directory in the place of its data, and start it: it joins again under a new id"
	return []Explanation{
		{"amnesia", []string{AboutQuarantine, AboutRefusal}, "A disk holds less than its member had promised",
			"Another member remembers a later start, a later term, or an acknowledged entry that this disk does not hold: it was put back from an old image, or lost its end. Its votes and acknowledgements are not counted, and its replicas stay closed, also after a restart.",
			[]string{lookAtDisk, emptyDir}},
		{"votes_behind", []string{AboutQuarantine}, "The log knows a later term than the votes",
			"The votes file is older than the log beside it: a part of the directory was put back from an old copy. The replica stays closed, for it could vote twice in one term.",
			[]string{lookAtDisk, emptyDir}},
		{"duplicate_identity", []string{AboutQuarantine, AboutRefusal}, "Two processes have the identity of one member",
			"Both were alive at once, with the same id and incarnation: one runs on a copy of the other's disk. Neither is heard any more, and both have closed their replicas.",
			[]string{"stop both processes", "start the one whose disk was not copied; if nobody knows which that is, start neither", emptyDir}},
		{"former_history", []string{AboutQuarantine, AboutRefusal}, "The cluster was recovered without this disk",
			"A majority was lost for good and the cluster goes on from another disk, under another history. This disk was given up then: it is never heard again, and its replicas stay closed. Nothing of it is deleted.",
			[]string{lookAtDisk, emptyDir}},
		{"other_history", []string{AboutRefusal}, "The cluster was recovered twice",
			"Two disks were each made the survivor of a recovery: there are two clusters with one cluster id now, which refuse each other. People have to say which one goes on.",
			[]string{"tidalctl recover plan --out plan.json", "stop the members of the other one for good"}},
		{"incarnation_changed", []string{AboutRefusal}, "A member of this id has another disk",
			"The roster knows the id with another incarnation: the directory is not the one that the member joined with. It is not heard under this id.",
			[]string{seeEvents, emptyDir}},
		{"unknown_member", []string{AboutRefusal}, "The roster does not name the member",
			"A member whose roster is not older does not know the id that wants to speak to it.", []string{"tidalctl members list"}},
		{"not_born", []string{AboutRefusal}, "The member belongs to no cluster yet", "It is asked again until it does.", []string{"tidalctl status"}},
		{"removed", []string{AboutError, AboutRefusal}, "The member belongs to the cluster no more",
			"It was removed, and has been told so: it closed its replicas and dials nobody. It comes back only by joining anew.",
			[]string{emptyDir, "tidalctl members list"}},
		{"expired", []string{AboutRefusal}, "A learner was never heard of and was taken out again", "It is told so and joins again by itself.", []string{"tidalctl members list"}},
		{string(CodeWrongCluster), []string{AboutError, AboutRefusal}, "The other side belongs to another cluster",
			"Requests and members carry the id of the cluster that they are meant for. Nothing was changed.", []string{"tidalctl members list"}},
		{"copied_data_dir", []string{AboutStart}, "The data directory is a copy",
			"The file `member` says which file it was written as, and is another one: the directory was copied. The original may be running, and two members with one identity would each vote. tidald does not start; nothing was changed.",
			[]string{"start the original", emptyDir}},
		{"corrupt_data_dir", []string{AboutStart}, "A file of the data directory is damaged or missing",
			"`member` says who this member is, `votes` what it promised. Without either it could vote twice, so tidald does not start, also while a reseed is latched: an install brings data back, not promises. Nothing was changed.",
			[]string{lookAtDisk, replace}},
		{"lost_group", []string{AboutStart}, "A group of the member is not on its disk",
			"`member` lists a group whose directory, or whose current log or state, is missing. That is a lost disk, never a new group: what it had acknowledged is gone. tidald does not start; nothing was changed.",
			[]string{lookAtDisk, replace}},
		{"foreign_data_dir", []string{AboutStart}, "The directory holds something, and nothing of a member",
			"A member begins in a directory that is empty or not there (a `lost+found` of a fresh file system does not count). This one holds files of somebody else: a home, the data of another program, a configuration. tidald does not start; nothing was changed.",
			[]string{"name another directory with --data-dir or TIDAL_DATA_DIR", "take what is in it elsewhere, if the directory is the right one"}},
		{"locked", []string{AboutStart}, "Another process has the data directory open", "One process at a time uses a directory. The message names the other one where it can be seen.", []string{"stop the process that is named"}},
		{"log_corrupt", []string{AboutQuarantine}, "The log is damaged",
			"A bad record stands before a good one, or a segment is missing. A tail that a crash cut short is not that: it is repaired. The replica is closed until it is installed again from another member.",
			[]string{"tidald wal verify DIR"}},
		{"log_write", []string{AboutQuarantine}, "The log could not be written",
			"A write or a sync of the log failed. It is never tried again: what the disk holds is not known. The replica is closed until its log was verified at a start, or installed again.",
			[]string{"look at the disk, then start the member again"}},
		{"state_error", []string{AboutQuarantine}, "The state could not be read or written", "The replica is installed again from another member.", []string{"tidalctl status"}},
		{"committed_missing", []string{AboutQuarantine}, "The log ends before what the state holds",
			"Committed entries are missing. The replica is closed until it is installed again from another member.", []string{"tidalctl status"}},
		{"divergent", []string{AboutQuarantine}, "The state is not what a majority has",
			"At one index the digest of this replica differs from that of a majority of the voters. It serves no reads and is installed again.", []string{"tidalctl status"}},
		{"upgrade_required", []string{AboutQuarantine, AboutRefusal}, "The log holds a record that this binary does not know", "The data is sound; the replica goes on with a newer binary.", []string{"start the member with the newer binary"}},
		{"assertion", []string{AboutQuarantine}, "The replica contradicted itself", "A check of the replica's own state failed. The data is kept.", []string{seeEvents, emptyDir}},
		{"clock_skew", []string{AboutError}, "A clock is wrong",
			"The clock of a member is further from those of the others than clock.max_drift. Nothing in the order of writes depends on it; times of signals that lie ahead of a member's clock are refused by it.",
			[]string{"look at the time service of the member that is named"}},
		{string(CodePlanStale), []string{AboutError}, "Something changed since the plan was made", "The survivor has come further, or is another one, or was recovered already. Nothing was changed.", []string{"tidalctl recover plan --out plan.json"}},
		{string(CodeStillAnswers), []string{AboutError}, "A member that the plan gives up answers", "It is not lost. Nothing was changed.", []string{"tidalctl recover plan --out plan.json", "stop for good the member that is named"}},
		{string(CodeHasLeader), []string{AboutError}, "The cluster has a leader and needs no recovery", "A recovery gives up members and may lose writes; a cluster with a leader removes or replaces members without either. Nothing was changed.", []string{"tidalctl members remove NAME", replace}},
	}
}
