'use client';

import { useEffect, useState } from 'react';

import { report } from './report';

/** The server also renders this component; an effect runs only in the visitor's browser. */
export function Visit() {
  const [said, say] = useState('…');
  useEffect(() => {
    report(42).then(() => say('Reported.'), (error) => say(error.message));
  }, []);
  return <p>{said}</p>;
}
