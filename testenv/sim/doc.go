// Package sim runs a cluster of real members on one thread, from a seed.
//
// Time is virtual and an event heap decides what happens next, so a seed is the whole of a run: the
// same seed gives the same events, the same rolling hash and the same failure. A member is what
// production runs: package member opens a data directory (datadir, birth, wal, state on real Pebble,
// apply) on a simulated disk (testenv/simfs), and a replica is driven by replica.Driver, which does on
// this thread what its goroutines do elsewhere. Members exchange bytes. What is modelled is what is
// outside of a process: the disk and its latency, the network, clocks, supervisors, clients.
//
// A run has three phases. In the first, faults overlap while clients write and read. Then everything
// is healed, and the members whose disks still hold what they promised must elect a leader in time,
// serve everybody and become equal. Then the ledger of the clients is audited. Oracles watch all along;
// each is written where it looks:
//
//   - oracle.go: one leader a term, one vote a member and term for ever; an (index, term) is one entry;
//     an index is applied as one entry everywhere; a state is, key by key, what a reference that applies
//     entry by entry has at the same index, also right after every start
//   - member.go: no vote, append response or acknowledgement before what it rests on is durable, as the
//     disk sees it; what was durable is there after every start; nothing leaves a replica that failed
//     closed; nobody fails, or refuses to start, without a fault of its disk
//   - client.go: a write is acknowledged exactly where it is applied, with the outcome that everybody
//     gets; a refused one is never applied, one of unknown outcome at most once; a linearizable read is
//     never older than what anybody was told before it, a session never goes back, and what is read is
//     exactly what the log says for the index that the answer names; what the leader alone acknowledged is
//     in its log, and lost only with it
//   - model.go: what writes came to, and what items and feeds are at every index, is what a second
//     reading of the rules in maps says, which model_test.go compares with a real store
//   - stream.go: of the lines of /ingest each is taken once, and none before those in front of it
//   - roster.go: ids are given once, adjacent configurations overlap, who acknowledges is a quorum
//   - outbox.go: what a member has taken by itself is in the log once, in the end, and in its own reads before
//   - divergent.go: a state that is not what the others have is told apart in time, and nobody else's is
//   - twin.go: of two processes on copies of one disk whoever hears both refuses both, and both stop
//   - members.go: what a change of the membership has answered survives a power loss of everybody, who
//     stops as removed is, who lost its disk is never who it was
//
// Logs are kept short, so members that were away fetch artifacts, over connections that break, and
// install them, as they do when their own data is condemned.
//
// In half of the seeds the membership changes: machines that no file declares join, and are promoted;
// members are removed, learn of it, and come back with an empty disk. A machine that loses its disk comes
// back under another id, in any seed.
//
// Faults that cannot be undone (rot, a wiped disk) stay within what an atlas allows: the members that
// are not hit keep a good copy of everything, except in the few seeds that must then stay silent.
//
// A disk goes back behind what was promised on it (rollback.go: an old copy is put back, the last frame
// rots) only where the others have heard of the promise and written it down: nobody else can tell. A disk
// that lies about a sync is the same, and is left out.
//
// raft draws its election jitter from crypto/rand. A test that wants a run to repeat calls
// cryptotest.SetGlobalRandom with the seed first; that is process-global, so runs of one process go
// one after the other.
package sim
