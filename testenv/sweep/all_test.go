//go:build soak

package sweep

// stride is 1: every image and every fault.
const stride = 1
