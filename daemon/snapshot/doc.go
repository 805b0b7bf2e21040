// Package snapshot moves the state of a group from one member to another: it stages artifacts for
// others, fetches them, verifies them, and installs them.
//
// An artifact is a checkpoint of applied state, its files named and summed in a manifest. What comes
// from the network is not trusted: a manifest is data, checked whole before it is acted on, and no
// byte becomes state before the sum of its file was right. An install has one commit point, the
// marker of the group's directory; a crash at any point leaves the old generation or the new one.
//
// What it promises to a consumer of an artifact at index S: for as long as the pin lasts, the log of
// whoever staged it keeps everything after S.
//
// It decides nothing about who needs an artifact, and speaks no wire: Source is what it fetches from.
// Callers: member. Format, crash analysis and why a sound log needs no barrier: DESIGN.md.
package snapshot
