package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// asset is a built file whose name contains its hash, so that browsers may cache it permanently.
type asset struct {
	File      string `json:"file"`
	Integrity string `json:"integrity"` // Subresource Integrity metadata.
}

// addHash renames a file NAME.EXT to NAME-HASH.EXT. HASH is the first 6 bytes of the file's SHA-256, in hexadecimal.
func addHash(file string) (asset, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return asset{}, fmt.Errorf("couldn't read %s: %w", file, err)
	}
	dir, name := filepath.Split(file)
	ext := filepath.Ext(name)
	name = strings.TrimSuffix(name, ext) + "-" + hex.EncodeToString(hashOf(content)[:6]) + ext
	if err := os.Rename(file, filepath.Join(dir, name)); err != nil {
		return asset{}, fmt.Errorf("couldn't rename %s: %w", file, err)
	}
	return asset{name, integrityOf(content)}, nil
}

// integrityOf returns the Subresource Integrity metadata of a file.
func integrityOf(content []byte) string {
	return "sha256-" + base64.StdEncoding.EncodeToString(hashOf(content))
}

// hashOf returns the SHA-256 of a file's bytes.
func hashOf(content []byte) []byte {
	sum := sha256.Sum256(content)
	return sum[:]
}

// writeIntegrity writes integrity.json to the folder out. It maps the name of each SDK file to its integrity metadata.
func writeIntegrity(out string) error {
	files, err := sdkFiles(out)
	if err != nil {
		return err
	}
	of := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("couldn't read %s: %w", file, err)
		}
		of[filepath.Base(file)] = integrityOf(content)
	}
	text, err := json.MarshalIndent(of, "", "  ")
	if err != nil {
		return fmt.Errorf("couldn't encode %s: %w", integrityFile, err)
	}
	return write(out, integrityFile, append(text, '\n'))
}

// checkVendored checks that every file listed in dir/SHA256SUMS has the listed hash.
func checkVendored(dir string) error {
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		return fmt.Errorf("couldn't read the hashes of vendored code: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(sums)); lines.Scan(); {
		want, name, _ := strings.Cut(lines.Text(), "  ")
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("couldn't read vendored code: %w", err)
		}
		if hex.EncodeToString(hashOf(content)) != want {
			return fmt.Errorf("vendored %s has another hash than SHA256SUMS says", name)
		}
	}
	return nil
}

// copyLicences writes the licences of all vendored code to LICENSES.txt in the folder out, because the bundles contain
// vendored code.
func copyLicences(out string) error {
	files, err := filepath.Glob(filepath.Join("www", "vendor", "*", "LICENSE*"))
	if err != nil {
		return fmt.Errorf("couldn't find licences: %w", err)
	}
	var text bytes.Buffer
	for _, file := range files {
		licence, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("couldn't read licence: %w", err)
		}
		fmt.Fprintf(&text, "%s\n\n%s\n", filepath.Base(filepath.Dir(file)), licence)
	}
	if err := os.WriteFile(filepath.Join(out, "LICENSES.txt"), text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("couldn't write licences: %w", err)
	}
	return nil
}
