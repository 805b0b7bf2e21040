//go:build soak

package member

const stride = 1 // every moment
