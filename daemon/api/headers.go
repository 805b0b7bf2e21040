package api

// Headers of every answer: who answered, in which term, and the applied index that the answer
// reflects (of an acknowledged write: the index of its entry).
const (
	HeaderMember = "Tidal-Member"
	HeaderTerm   = "Tidal-Term"
	HeaderIndex  = "Tidal-Index"
)

// Headers of an acknowledged write: what is promised (quorum), how many other members hold it
// durably by now, and the names of those that do not yet, comma-separated.
const (
	HeaderAck          = "Tidal-Ack"
	HeaderReplicatedTo = "Tidal-Replicated-To"
	HeaderPending      = "Tidal-Pending"
)

// HeaderCluster of a request names the cluster it is meant for; another one answers wrong_cluster.
const HeaderCluster = "Tidal-Cluster"

// HeaderTimeout of a request is how long its caller waits, in milliseconds: after that nobody works on the
// answer any more, here or where the request was forwarded to. What it began may go on.
const HeaderTimeout = "Tidal-Timeout-Ms"

// HeaderInternal marks a request that a member forwarded: it runs where it arrives or is refused,
// and is never forwarded again. It counts only together with HeaderPeerKey.
const (
	HeaderInternal = "X-Tidal-Internal"
	HeaderPeerKey  = "X-Tidal-Peer-Key"
	// HeaderFrom is the name of the member that forwarded it; the faults of a drill go by it.
	HeaderFrom = "X-Tidal-From"
)
