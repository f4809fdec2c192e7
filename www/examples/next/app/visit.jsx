'use client';

import { useEffect, useState } from 'react';

import { report } from './report';

/** A server renders it, too: only an effect runs where the visitor is. */
export function Visit() {
  const [said, say] = useState('…');
  useEffect(() => {
    report(42).then(() => say('Reported.'), (error) => say(error.message));
  }, []);
  return <p>{said}</p>;
}
