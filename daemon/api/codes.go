package api

import "net/http"

// Code is the stable name of an error. Codes are never renamed or given another meaning.
type Code string

// CodeSpec is one row of the table of codes.
type CodeSpec struct {
	Code      Code
	Status    int    // HTTP
	Exit      int    // of tidalctl
	Title     string // a constant sentence
	Retryable bool
	Effect    Effect
}

// The codes.
const (
	CodeBadRequest         Code = "bad_request"
	CodeTooLarge           Code = "too_large"
	CodeWrongCluster       Code = "wrong_cluster"
	CodeUnauthorized       Code = "unauthorized"
	CodeForeignHost        Code = "foreign_host"
	CodeNotFound           Code = "not_found"
	CodeUnknownCollection  Code = "unknown_collection"
	CodeUnknownSignal      Code = "unknown_signal"
	CodeAttributeMismatch  Code = "attribute_mismatch"
	CodeDimensionMismatch  Code = "dimension_mismatch"
	CodeSchemaInUse        Code = "schema_in_use"
	CodeTooManyCollections Code = "too_many_collections"
	CodeKeyMismatch        Code = "idempotency_mismatch"
	CodeTooManyKeys        Code = "too_many_keys"
	CodeIdle               Code = "idle"
	CodeNoRoute            Code = "no_route"
	CodeMethodNotAllowed   Code = "method_not_allowed"
	CodeCompacted          Code = "compacted"
	CodeOperationReused    Code = "operation_reused"
	CodeNotVoter           Code = "not_voter"
	CodeTargetUnreachable  Code = "target_unreachable"
	CodeTargetQuarantined  Code = "target_quarantined"
	CodeLagTooHigh         Code = "lag_too_high"
	CodeTransferInProgress Code = "transfer_in_progress"
	CodeTransferFailed     Code = "transfer_failed"
	CodeOtherLeader        Code = "other_leader"
	CodeInterrupted        Code = "interrupted"
	CodeNotLeader          Code = "not_leader"
	CodeOverloaded         Code = "overloaded"
	CodeDiskFull           Code = "disk_full"
	CodeOutboxFull         Code = "outbox_full"
	CodeOutboxFailed       Code = "outbox_failed"
	CodeNoLeader           Code = "no_leader"
	CodeNoQuorum           Code = "no_quorum"
	CodeLeaderUnreached    Code = "leader_unreachable"
	CodeMemberUnreached    Code = "member_unreachable"
	CodeNotReady           Code = "not_ready"
	CodeWriteLost          Code = "write_lost"
	CodeOutcomeUnknown     Code = "outcome_unknown"
	CodeIndexTimeout       Code = "index_timeout"
	CodeReadTimeout        Code = "read_timeout"
	CodeQuarantined        Code = "quarantined"
	CodeDrillsDisabled     Code = "drills_disabled"
	CodeQuorumAtStake      Code = "quorum_at_stake"
	CodePlanStale          Code = "plan_stale"
	CodeStillAnswers       Code = "still_answers"
	CodeHasLeader          Code = "has_leader"
	CodeNoSource           Code = "no_source"
	CodeNotHealed          Code = "not_healed"
	CodeReseedStalled      Code = "reseed_stalled"
	CodeNameTaken          Code = "name_taken"
	CodeRemoved            Code = "removed"
	CodeReplaceManual      Code = "replace_manual"
	CodeReplaceFlapping    Code = "replace_flapping"
	CodeCapabilityMissing  Code = "capability_missing"
	CodeChangeInProgress   Code = "conf_change_in_progress"
	CodeUnsafeRemoval      Code = "unsafe_removal"
	CodePromotionPending   Code = "promotion_pending"
	CodeJoinPending        Code = "join_pending"
	CodeInternal           Code = "internal"
)

// Codes returns the whole table, in the order of its document.
func Codes() []CodeSpec {
	return []CodeSpec{
		{CodeBadRequest, http.StatusBadRequest, 64, "The request is malformed", false, EffectNone},
		{CodeTooLarge, http.StatusRequestEntityTooLarge, 64, "The request is larger than the limit", false, EffectNone},
		{CodeWrongCluster, http.StatusConflict, 6, "The request is meant for another cluster", false, EffectNone},
		{CodeUnauthorized, http.StatusUnauthorized, 4, "The key is missing or wrong", false, EffectNone},
		{CodeForeignHost, http.StatusForbidden, 4, "The request is not for this member", false, EffectNone},
		{CodeNotFound, http.StatusNotFound, 5, "There is no such thing", false, EffectNone},
		{CodeUnknownCollection, http.StatusNotFound, 5, "There is no such collection", false, EffectNone},
		{CodeUnknownSignal, http.StatusBadRequest, 64, "The collection has no such signal", false, EffectNone},
		{CodeAttributeMismatch, http.StatusBadRequest, 64, "An attribute is not of its declared type", false, EffectNone},
		{CodeDimensionMismatch, http.StatusBadRequest, 64, "The collection has embeddings of another dimension", false, EffectNone},
		{CodeSchemaInUse, http.StatusConflict, 6, "The data of the collection rests on what would change", false, EffectNone},
		{CodeTooManyCollections, http.StatusConflict, 6, "There are as many collections as there can be", false, EffectNone},
		{CodeKeyMismatch, http.StatusUnprocessableEntity, 6, "The idempotency key belongs to another request", false, EffectNone},
		{CodeTooManyKeys, http.StatusTooManyRequests, 1, "No more idempotency keys can be kept", true, EffectNone},
		{CodeIdle, http.StatusRequestTimeout, 124, "The stream was idle for too long", true, EffectNone},
		{CodeNoRoute, http.StatusNotFound, 5, "There is no such route", false, EffectNone},
		{CodeMethodNotAllowed, http.StatusMethodNotAllowed, 64, "The route has no such method", false, EffectNone},
		{CodeCompacted, http.StatusGone, 5, "What was asked for is not kept any more", false, EffectNone},
		{CodeOperationReused, http.StatusConflict, 6, "The operation id belongs to another request", false, EffectNone},
		{CodeNotVoter, http.StatusConflict, 6, "The member is no voter", false, EffectNone},
		{CodeTargetUnreachable, http.StatusConflict, 6, "The member does not answer the leader", true, EffectNone},
		{CodeTargetQuarantined, http.StatusConflict, 6, "The member's data must not be served", true, EffectNone},
		{CodeLagTooHigh, http.StatusConflict, 6, "The member is too far behind", true, EffectNone},
		{CodeTransferInProgress, http.StatusConflict, 6, "Leadership is moving already", true, EffectNone},
		{CodeTransferFailed, http.StatusServiceUnavailable, 1, "Leadership did not move", true, EffectNone},
		{CodeOtherLeader, http.StatusConflict, 1, "Another member leads now", false, EffectApplied},
		{CodeInterrupted, http.StatusServiceUnavailable, 1, "A restart cut it short, and nothing came of it", true, EffectNone},
		{CodeNotLeader, http.StatusMisdirectedRequest, 8, "This member does not lead", true, EffectNone},
		{CodeOverloaded, http.StatusTooManyRequests, 1, "A queue is full", true, EffectNone},
		{CodeDiskFull, http.StatusInsufficientStorage, 1, "The leader's disk is almost full", true, EffectNone},
		{CodeOutboxFull, http.StatusTooManyRequests, 1, "Too many writes wait for a leader", true, EffectNone},
		{CodeOutboxFailed, http.StatusServiceUnavailable, 1, "The outbox of the member takes no writes", true, EffectNone},
		{CodeNoLeader, http.StatusServiceUnavailable, 8, "No leader is known", true, EffectNone},
		{CodeNoQuorum, http.StatusServiceUnavailable, 8, "The write was not proposed: no majority answers", true, EffectNone},
		{CodeLeaderUnreached, http.StatusServiceUnavailable, 8, "The leader could not be reached", true, EffectNone},
		{CodeMemberUnreached, http.StatusServiceUnavailable, 8, "The member could not be reached", true, EffectNone},
		{CodeNotReady, http.StatusServiceUnavailable, 8, "This member is not ready", true, EffectNone},
		{CodeWriteLost, http.StatusServiceUnavailable, 1, "Another entry took the place of the write", true, EffectNone},
		{CodeOutcomeUnknown, http.StatusGatewayTimeout, 9, "The outcome is not known", false, EffectUnknown},
		{CodeIndexTimeout, http.StatusServiceUnavailable, 124, "The wanted index was not applied here in time", true, EffectNone},
		{CodeReadTimeout, http.StatusServiceUnavailable, 8, "No quorum confirmed the read in time", true, EffectNone},
		{CodeQuarantined, http.StatusServiceUnavailable, 1, "The data here must not be served", true, EffectNone},
		{CodeDrillsDisabled, http.StatusConflict, 6, "The member injects no faults", false, EffectNone},
		{CodeQuorumAtStake, http.StatusConflict, 6, "No majority of the voters would be left", false, EffectNone},
		{CodePlanStale, http.StatusConflict, 6, "Something changed since the plan was made", false, EffectNone},
		{CodeStillAnswers, http.StatusConflict, 6, "A member that the plan gives up answers", false, EffectNone},
		{CodeHasLeader, http.StatusConflict, 6, "The cluster has a leader and needs no recovery", false, EffectNone},
		{CodeNoSource, http.StatusConflict, 6, "No other sound member has the data", true, EffectNone},
		{CodeNotHealed, http.StatusConflict, 6, "Other data would not heal the replica", false, EffectNone},
		{CodeReseedStalled, http.StatusGatewayTimeout, 124, "The reseed does not get on; it stays latched", false, EffectApplied},
		{CodeNameTaken, http.StatusConflict, 6, "A member of this name is alive, or may be", true, EffectNone},
		{CodeRemoved, http.StatusConflict, 6, "The member was removed", false, EffectNone},
		{CodeReplaceManual, http.StatusConflict, 6, "A lost member is replaced only when an operator says so", false, EffectNone},
		{CodeReplaceFlapping, http.StatusConflict, 6, "The member was replaced too often", true, EffectNone},
		{CodeCapabilityMissing, http.StatusConflict, 6, "A member does not understand what the log would hold", false, EffectNone},
		{CodeChangeInProgress, http.StatusConflict, 6, "Another change of the membership is under way", true, EffectNone},
		{CodeUnsafeRemoval, http.StatusConflict, 6, "The removal would be unsafe", true, EffectNone},
		{CodePromotionPending, http.StatusConflict, 6, "The member may not vote yet", true, EffectNone},
		{CodeJoinPending, http.StatusServiceUnavailable, 8, "The join was not applied in time; asked again, it goes on", true, EffectUnknown},
		{CodeInternal, http.StatusInternalServerError, 1, "An error of the member", false, EffectUnknown},
	}
}

// Lookup returns the row of code.
func Lookup(code Code) (CodeSpec, bool) {
	for _, c := range Codes() {
		if c.Code == code {
			return c, true
		}
	}
	return CodeSpec{}, false
}

func (c Code) spec() CodeSpec {
	if s, ok := Lookup(c); ok {
		return s
	}
	s, _ := Lookup(CodeInternal)
	return s
}
