// For comparison: sends a value unencrypted with sendBeacon, as soon as the script runs.
navigator.sendBeacon(`${new URLSearchParams(location.search).get('relay')}/beacon`, '1');
