package sim

// Markers returns what a run of CI must reach, or it proves less than it says. Each is counted where it
// is reached, by cluster.sometimes.
func Markers() []string {
	all := []string{
		// Disks and processes.
		"crash strict", "crash everything", "crash prefix", "crash subset", "crash torn", "crash garbage",
		"crash names-first", "crash bytes-first",
		"crash with frames on their way", "a frame survived that nobody waited for",
		"power lost in the middle of a write", "power lost while starting", "power lost during birth",
		"opened with state behind commit", "log suffix replaced",
		"quarantine found again after a start", "failed closed: log", "failed closed: votes", "failed closed: state",
		"start failed by a fault of the disk", "quarantined for a fault of the disk",
		"quarantined for damage: log_corrupt", "damaged member refuses to start", "lost disk waits",
		"copied directory refused", "old copy put back", "last frame rots", "forgetful member refused", "quarantined for damage: amnesia", "disk almost full", "majority damaged",
		"artifact installed", "artifact not needed", "transfer broken", "transfer resumed",
		"artifact installed beside a sound log", "barrier given", "artifact installed under a barrier", "damaged member healed",
		"leader has a reason to hand over", "leader hands over for its disk", "disks audited",
		// The network.
		"message dropped", "message doubled", "message late by minutes", "leader's port refuses",
		// Consensus.
		"leader elected", "write lost to another leader", "not leader",
		// Membership.
		"removal settled", "removal unsafe", "removal not carried out", "removed member told", "removed member stops", "removed member stays so",
		"refused: removed", "a removed member is heard until its removal is settled",
		// Clients.
		"write acknowledged", "write of many records", "entry of many writes",
		"record refused: unknown_collection", "record refused: unknown_signal", "record refused: dimension_mismatch", "record refused: schema_in_use",
		"outcome unknown", "unknown write is in", "unknown write is not in",
		"write refused while closing", "write refused by a full disk", "given up before it was proposed",
		"refused by a failed replica", "overloaded: writes",
		"write tried again with its key", "write with a key taken once", "write acknowledged that was taken before",
		"write acknowledged by the leader alone", "write acknowledged by the leader alone is in", "write lost with its leader",
		"part of a stream acknowledged", "stream broken with parts under way",
		"linearizable read", "labelled read", "read waited in vain", "read of no collection", "feed read", "embedding read", "history linearizable",
		// Outboxes.
		"local write taken", "outboxes exchanged", "operation delivered", "operation delivered again",
		"local write read before it is delivered", "local write lost with its disk",
		// A state that is not what the others have, and two processes on copies of one disk.
		"row altered", "divergent state found", "divergent state installed again", "copy fenced", "both copies fenced",
	}
	if playsJoins {
		all = append(all, "join answered", "join refused", "joined", "lost disk comes back as somebody else", "somebody else listens there",
			"fault join", "fault promotion")
	}
	for _, k := range kinds {
		if k.name == "join" || k.name == "promotion" {
			continue
		}
		all = append(all, "fault "+k.name)
	}
	return all
}
