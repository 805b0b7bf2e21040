// Package output prints what a verb found, in the format the user asked for.
//
// A verb hands over one Document: the value, which is what JSON, YAML and templates show, and a View,
// which is how people see it. So every command has every format and they cannot drift apart: the
// view is made from the value and from nothing else.
//
// What a script may rely on: a JSON document starts with its schema, "tidalctl.<kind>/v1", within
// which fields are only ever added. What a terminal may rely on: text that came from elsewhere
// cannot control it, for every character that does not print is escaped (but for -o template, which
// prints what the template says).
//
// Callers: ctl and its verbs. It imports nothing of ours.
package output
