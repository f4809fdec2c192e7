import { Visit } from './visit';

export default function Page() {
  return <Visit value={42} />;
}
