//go:build !future

package ident

const capFuture Capabilities = 0 // see future.go
