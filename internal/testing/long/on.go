//go:build long

package long

// Enabled is whether tests run in their long form.
const Enabled = true
