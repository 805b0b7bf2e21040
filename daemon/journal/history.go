package journal

// Historic reports whether events of a kind are changes of leadership or of membership, which
// GET /cluster/history tells.
func Historic(k Kind) bool {
	switch k {
	case KindBorn, KindJoined, KindRosterApplied, KindLeaderElected:
		return true
	}
	return false
}

// All returns everything that is kept, oldest first.
func (j *Journal) All() []Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	events, _ := j.after(j.floor(), Capacity) // the floor is never compacted
	return events
}
