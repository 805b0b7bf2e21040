//go:build future

package ident

// capFuture stands for what a later release will add: it is in no release. A build with the tag is the
// newer binary of the tests of upgrades, where every other build is the older one.
const capFuture Capabilities = 1 << 62
