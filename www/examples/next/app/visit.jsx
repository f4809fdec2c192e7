'use client';

import { useEffect } from 'react';

import { report } from './report';

/** The server also renders this component; an effect runs only in the visitor's browser. */
export function Visit({ value }) {
  useEffect(() => report(value), [value]);
  return <p>The console shows each step.</p>;
}
