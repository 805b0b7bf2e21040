// Package command says what the payload of a log entry is: the kinds of entries and records, their
// codec, which capability of a member each needs, and what becomes of a write (Outcome, Applied).
//
// Payloads are binary, so that followers never parse JSON. A payload is checked whole by Decode, once;
// what Decode returned is then walked without errors and without allocation: strings are parts of the
// payload, which is read-only from the moment it is proposed.
//
// What this binary does not know — a kind, a version, a flag — is an *UnknownKindError: a newer member
// wrote it, and the only answer is to stop applying until the binary is upgraded. Bytes that break the
// format are a *MalformedError: no member ever wrote them.
//
// Callers: ops and the gateway encode writes, consensus joins many into one entry, apply and the
// observers of applied entries decode. The table of kinds is README.md, which a test compares.
package command
