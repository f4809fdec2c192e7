// Package deploy holds what operators run a relay with: a systemd unit, a Dockerfile, a Grafana
// dashboard and alert rules. docs/deployment.md is the guide; the tests here hold the files to the
// program.
package deploy
