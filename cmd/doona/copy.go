package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// copyCommand is what `doona copy` does without the npm package, whose script copies the files (www/npm/copy.mjs).
func copyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "copy FOLDER",
		Short:   "Copy the files that a site must host (with npx)",
		Long:    "Copy is a command of the npm package, which has the files: the scripts, the worker and the WASM modules.",
		Example: "  npx doona copy public/doona",
		RunE: func(*cobra.Command, []string) error {
			return errors.New("couldn't copy: the npm package has the files; run npx doona copy FOLDER in the project")
		},
	}
}
